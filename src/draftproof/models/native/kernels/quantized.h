// A weight matrix in one of GGUF's quantised types, and its product with rows of int8 activations.
//
// The number that is promised for output channel n and row r, whatever the number of rows, threads or lanes:
//   acc starts at zero; the inputs are taken in blocks of 32 with rising k (Q6_K: in halves of 16);
//   dot = the exact sum of (integer of the weight - offset) * integer of the activation;
//   acc = fma(float(dot), scale of the weight * scale of the activation, acc);
//   where the type has minima, acc = fma(minimum, scaled sum of the activation, acc) follows;
//   the bias, where there is one, is added last.
// The scale of a weight is its block's d times its factor, exact in float32, as dequantisation has it.
#pragma once

#include <algorithm>

#include "formats.h"

namespace dp {

constexpr int MAX_TILE_ROWS = 16;              // rows for which a sub-block is unpacked once
constexpr size_t TILE_GROUP_BYTES = 256 << 10;  // tiles that rows are multiplied with while they lie in the cache
constexpr size_t PREFETCH_BYTES = 4096;        // how far ahead memory is asked for weights

template <class F> class Quantized final : public Storage {
  public:
    Quantized(Arena& arena, int inputs, int channels)
        : Storage(inputs, channels), tiles_((channels + TILE - 1) / TILE), units_(inputs / F::INPUTS),
          tile_bytes_(size_t(units_) * F::UNIT_BYTES) {
        if (inputs % F::INPUTS) throw std::invalid_argument("inputs of a quantised matrix must be whole blocks");
        data_ = static_cast<uint8_t*>(arena.take(tiles_ * tile_bytes_ + PREFETCH_BYTES));
    }

    bool reads_blocks() const override { return true; }
    int num_panels() const override { return tiles_; }
    void multiply(int first, int last, const Input& x, int num_rows, const Target& to) const override;
    void read_channel(int channel, float* weights) const override;
    Floats reference(const Floats& x) const override;

    // Copies blocks of the file, row-major [num_channels][num_inputs / F::INPUTS]; false where a scale is not finite.
    bool pack(Team& team, const uint8_t* source);

    const uint8_t* unit(int tile, int index) const { return data_ + tile * tile_bytes_ + size_t(index) * F::UNIT_BYTES; }

  private:
    template <int R>
    void multiply_tile(int tile, const Int8Rows& x, int first_row, int num_rows, const Target& to) const;
    void multiply_rows(int tile, const Int8Rows& x, int first_row, int num_rows, const Target& to) const;
    bool pack_tile(int tile, const uint8_t* source);

    int tiles_, units_;
    size_t tile_bytes_;
    uint8_t* data_;
};

// One tile times R rows, of which num_rows are wanted.
template <class F>
template <int R>
[[gnu::noinline]] void Quantized<F>::multiply_tile(int tile, const Int8Rows& x, int first_row, int num_rows,
                                                   const Target& to) const {
    typedef typename F::Scales Scales;
    alignas(LINE_BYTES) float sums[R][TILE];
    const Int8Block* rows[R];
    for (int r = 0; r < R; ++r) rows[r] = x.row(first_row + std::min(r, num_rows - 1));
    for (int lane = 0; lane < TILE; lane += WIDE) {
        vecw acc[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r] = vecw{};
        const uint8_t* from = unit(tile, 0);
        for (int index = 0; index < units_; ++index, from += F::UNIT_BYTES) {
            const Scales scales(from, lane);
            for (int line = 0; line < Scales::BYTES; line += LINE_BYTES) __builtin_prefetch(from + PREFETCH_BYTES + line);
            const uint8_t* payload = from + Scales::BYTES;
            for (int sub = 0; sub < Scales::SUBS; ++sub, payload += F::PAYLOAD) {
#pragma GCC unroll 16
                for (int line = 0; line < F::PAYLOAD; line += LINE_BYTES)
                    __builtin_prefetch(payload + PREFETCH_BYTES + line);
                const int block = index * Scales::SUBS + sub;
                intw w[GROUPS];
                unpack<F::BITS>(payload, lane, w);
                const vecw scale = scales.scale(sub, 0), high_scale = scales.scale(sub, Scales::SCALES_PER_SUB - 1);
                const vecw minimum = scales.minimum(sub);
#pragma GCC unroll 16
                for (int r = 0; r < R; ++r) {
                    const Int8Block& b = rows[r][block];
                    const auto dot = [&](intw sum, int group) __attribute__((always_inline)) {
                        return dot4<F::BITS == 8>(sum, w[group], load<int32_t>(b.values + 4 * group));
                    };
                    const auto start = [](int32_t sum) { return -F::OFFSET * sum - intw{}; };
                    const auto add = [&](intw sum, vecw s) __attribute__((always_inline)) {
                        acc[r] = fma(__builtin_convertvector(sum, vecw), s * splat<vecw>(b.scale), acc[r]);
                    };
                    intw sum = start(Scales::SCALES_PER_SUB == 1 ? b.low_sum + b.high_sum : b.low_sum);
#pragma GCC unroll 4
                    for (int group = 0; group < GROUPS / 2; ++group) sum = dot(sum, group);
                    if constexpr (Scales::SCALES_PER_SUB == 2) add(sum, scale), sum = start(b.high_sum);
#pragma GCC unroll 4
                    for (int group = GROUPS / 2; group < GROUPS; ++group) sum = dot(sum, group);
                    add(sum, high_scale);
                    if constexpr (Scales::HAS_MINIMUM) acc[r] = fma(minimum, splat<vecw>(b.scaled_sum), acc[r]);
                }
            }
        }
        for (int r = 0; r < R; ++r) store(sums[r] + lane, acc[r]);
    }
    const int channel = tile * TILE, count = std::min(TILE, num_channels - channel);
    for (int r = 0; r < num_rows; ++r) to.put(first_row + r, channel, count, sums[r]);
}

template <class F>
void Quantized<F>::multiply_rows(int tile, const Int8Rows& x, int first_row, int num_rows, const Target& to) const {
    switch (num_rows) {
        case 1: return multiply_tile<1>(tile, x, first_row, num_rows, to);
        case 2: return multiply_tile<2>(tile, x, first_row, num_rows, to);
        case 3: case 4: return multiply_tile<4>(tile, x, first_row, num_rows, to);
        case 5: case 6: return multiply_tile<6>(tile, x, first_row, num_rows, to);
        case 7: case 8: return multiply_tile<8>(tile, x, first_row, num_rows, to);
        default: return multiply_tile<MAX_TILE_ROWS>(tile, x, first_row, num_rows, to);
    }
}

template <class F>
void Quantized<F>::multiply(int first, int last, const Input& x, int num_rows, const Target& to) const {
    int group = 1;  // few rows: tile by tile, as they lie in memory
    if (num_rows > MAX_TILE_ROWS) group = std::max(1, int(TILE_GROUP_BYTES / tile_bytes_));
    for (int tile = first; tile < last; tile += group)
        for (int row = 0; row < num_rows; row += MAX_TILE_ROWS)
            for (int member = tile; member < std::min(tile + group, last); ++member)
                multiply_rows(member, x.blocks, row, std::min(MAX_TILE_ROWS, num_rows - row), to);
}

// The weights of one channel as dequantisation gives them.
template <class F> void Quantized<F>::read_channel(int channel, float* weights) const {
    typedef typename F::Scales Scales;
    const int tile = channel / TILE, lane = channel % TILE;
    for (int k = 0; k < num_inputs; ++k) {
        const uint8_t* from = unit(tile, k / F::INPUTS);
        const int sub = k % F::INPUTS / BLOCK_INPUTS, half = k % BLOCK_INPUTS / 16 * (Scales::SCALES_PER_SUB - 1);
        const int integer = get_integer<F::BITS>(from + Scales::BYTES + sub * F::PAYLOAD, lane, k % BLOCK_INPUTS);
        weights[k] = Scales::scale_at(from, lane, sub, half) * float(integer - F::OFFSET);
        if constexpr (Scales::HAS_MINIMUM) weights[k] = weights[k] + Scales::minimum_at(from, lane, sub);
    }
}

template <class F> bool Quantized<F>::pack_tile(int tile, const uint8_t* source) {
    typedef typename F::Scales Scales;
    bool is_finite = true;
    std::memset(data_ + tile * tile_bytes_, 0, tile_bytes_);
    for (int lane = 0; lane < TILE && tile * TILE + lane < num_channels; ++lane) {
        const uint8_t* block = source + size_t(tile * TILE + lane) * units_ * F::FILE_BYTES;
        for (int index = 0; index < units_; ++index, block += F::FILE_BYTES) {
            uint8_t* to = data_ + tile * tile_bytes_ + size_t(index) * F::UNIT_BYTES;
            Scales::put(to, lane, block);
            is_finite = is_finite && Scales::is_finite(to, lane);
            for (int k = 0; k < F::INPUTS; ++k)
                put_integer<F::BITS>(to + Scales::BYTES + k / BLOCK_INPUTS * F::PAYLOAD, lane, k % BLOCK_INPUTS,
                                     F::integer(block, k));
        }
    }
    return is_finite;
}

template <class F> bool Quantized<F>::pack(Team& team, const uint8_t* source) {
    std::atomic<bool> is_finite{true};
    team.share(tiles_, [&](int first, int last) {
        for (int tile = first; tile < last; ++tile)
            if (!pack_tile(tile, source)) is_finite = false;
    });
    team.barrier();
    return is_finite;
}

}  // namespace dp
