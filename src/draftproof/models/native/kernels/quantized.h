// A weight matrix in one of GGUF's quantised types, and its product with rows of int8 activations.
//
// The number that is promised for output channel n and row r, whatever the number of rows, threads or lanes. Integers
// of weights have their type's offset subtracted; `dot` is an exact sum of products of integers; a weight's scale is
// its block's d times its factor, exact in float32, as dequantisation has it. Inputs are taken with rising k.
//   Types with blocks of 32: for each block
//     acc = fma(float(dot), scale of the weight * scale of the activation, acc), from zero on, then, where the type
//     has minima, acc = fma(minimum, scaled sum of the activation, acc).
//   K-quants, with blocks of 256: for each 32 inputs (Q6_K: 16), part = fma(float(dot), scale of the weight, part),
//     from zero on; in Q4_K and Q5_K then part = fma(float(dot of minimum factors and sums of 32), -dmin, part);
//     acc = fma(part, scale of the activation, acc), from zero on.
//   The bias, where there is one, is added last.
#pragma once

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "formats.h"

namespace dp {

constexpr size_t TILE_GROUP_BYTES = 256 << 10;  // tiles that rows are multiplied with while they lie in the cache
constexpr size_t PREFETCH_BYTES = 8192;        // how far ahead memory is asked for weights
constexpr int AMX_MIN_ROWS = ROW_GROUP + 1;    // fewer rows are multiplied in vectors, which is quicker

template <class F> class Quantized final : public Storage {
  public:
    Quantized(Arena& arena, int inputs, int channels)
        : Storage(inputs, channels), tiles_((channels + TILE - 1) / TILE), units_(inputs / F::INPUTS),
          tile_bytes_(size_t(units_) * F::UNIT_BYTES) {
        if (inputs % F::INPUTS) throw std::invalid_argument("inputs of a quantised matrix must be whole blocks");
        data_ = static_cast<uint8_t*>(arena.take(tiles_ * tile_bytes_ + PREFETCH_BYTES));
    }

    Reads reads() const override { return F::IS_SUPER ? Reads::super_blocks : Reads::blocks; }
    int num_panels() const override { return tiles_; }
    void multiply(int first, int last, const Input& x, int num_rows, const Target& to) const override;
    void read_channel(int channel, float* weights) const override;
    Floats reference(const Floats& x) const override;

    // Copies blocks of the file, row-major [num_channels][num_inputs / F::INPUTS]; false where a scale is not finite.
    bool pack(Team& team, const uint8_t* source);

    const uint8_t* unit(int tile, int index) const { return data_ + tile * tile_bytes_ + size_t(index) * F::UNIT_BYTES; }

  private:
    typedef std::conditional_t<F::IS_SUPER, Int8SuperBlock, Int8Block> Block;

    template <int R>
    void multiply_tile(int tile, const Int8Rows<Block>& x, int first_row, const Target& to) const;
    // Adds to acc what one unit gives to each of R rows.
    template <int R> static void multiply_unit(const uint8_t* unit, const Block* x, int lane, vecw (&acc)[R]);
    void multiply_group(int tile, const Int8Rows<Block>& x, int first_row, const Target& to) const;
#if DP_HAS_AMX
    void multiply_group_amx(int first, int last, const Int8Rows<Block>& x, int first_row, const Target& to) const;
    template <int R>
    void multiply_tile_amx(int tile, const Int8Rows<Block>& x, int first_row, const Target& to) const;
#endif
    bool pack_tile(int tile, const uint8_t* source);

    int tiles_, units_;
    size_t tile_bytes_;
    uint8_t* data_;
};

// What 256 inputs gave so far, less the minima times the sums of their activations, where the type has minima.
template <class Scales>
[[gnu::always_inline]] inline vecw with_minima(const Scales& scales, const Int8SuperBlock& x, vecw part) {
    if constexpr (Scales::HAS_MINIMUM) {
        intw low = {}, high = {};
#pragma GCC unroll 2
        for (int four = 0; four < 2; ++four) {
            const intw factors = scales.minimum_factors(four);
            low = dot4<false>(low, factors, load<int32_t>(x.sums_low + 4 * four));
            high = dot4<false>(high, factors, load<int32_t>(x.sums_high + 4 * four));
        }
        return fma(__builtin_convertvector(high * SUM_STEP + low, vecw), -scales.dmin(), part);
    }
    return part;
}

template <class F>
template <int R>
[[gnu::always_inline]] inline void Quantized<F>::multiply_unit(const uint8_t* unit, const Block* x, int lane,
                                                               vecw (&acc)[R]) {
    typedef typename F::Scales Scales;
    constexpr int PER_SUB = Scales::SCALES_PER_SUB;
    // One or two rows wait for memory, and lines are wanted at once; more rows compute meanwhile, and so many requests
    // of the first level are more than it keeps: the second level takes them.
    constexpr int LOCALITY = R > 2 ? 2 : 3;
    const Scales scales(unit, lane);
    vecw part[R];
    if constexpr (F::IS_SUPER) {
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) part[r] = vecw{};
    }
    for (int line = 0; line < Scales::BYTES; line += LINE_BYTES)
        __builtin_prefetch(unit + PREFETCH_BYTES + line, 0, LOCALITY);
    const uint8_t* payload = unit + Scales::BYTES;
    for (int sub = 0; sub < Scales::SUBS; ++sub, payload += F::PAYLOAD) {
#pragma GCC unroll 16
        for (int line = 0; line < F::PAYLOAD; line += LINE_BYTES)
            __builtin_prefetch(payload + PREFETCH_BYTES + line, 0, LOCALITY);
        intw w[GROUPS], dots[R];
        unpack<F::BITS>(payload, lane, w);
#pragma GCC unroll 2
        for (int half = 0; half < PER_SUB; ++half) {
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                dots[r] = intw{};
                if constexpr (F::OFFSET != 0) {
                    const int16_t* sums = x[r].half_sums + 2 * sub;
                    dots[r] = -F::OFFSET * (PER_SUB == 2 ? sums[half] : sums[0] + sums[1]) - intw{};
                }
            }
#pragma GCC unroll 8
            for (int group = half * GROUPS / PER_SUB; group < (half + 1) * GROUPS / PER_SUB; ++group)
#pragma GCC unroll 16
                for (int r = 0; r < R; ++r)
                    dots[r] = dot4<F::BITS == 8>(dots[r], w[group],
                                                 load<int32_t>(x[r].values + sub * BLOCK_INPUTS + 4 * group));
            const vecw scale = scales.scale(sub, half);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const vecw dot = __builtin_convertvector(dots[r], vecw);
                if constexpr (F::IS_SUPER) {
                    part[r] = fma(dot, scale, part[r]);
                } else {
                    acc[r] = fma(dot, scale * splat<vecw>(x[r].scale), acc[r]);
                    if constexpr (Scales::HAS_MINIMUM) acc[r] = fma(scales.m, splat<vecw>(x[r].scaled_sum), acc[r]);
                }
            }
        }
    }
    if constexpr (F::IS_SUPER) {
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            acc[r] = fma(with_minima(scales, x[r], part[r]), splat<vecw>(x[r].scale), acc[r]);
        }
    }
}

// One tile times the group of rows that begins with `first_row`, of which there are R at most.
template <class F>
template <int R>
[[gnu::noinline]] void Quantized<F>::multiply_tile(int tile, const Int8Rows<Block>& x, int first_row,
                                                   const Target& to) const {
    alignas(LINE_BYTES) float sums[R][TILE];
    const int num_rows = x.rows_in_group(first_row);
    for (int lane = 0; lane < TILE; lane += WIDE) {
        vecw acc[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r] = vecw{};
        const Block* block = x.row(first_row);
        const uint8_t* from = unit(tile, 0);
        for (int index = 0; index < units_; ++index, from += F::UNIT_BYTES, block += num_rows)
            multiply_unit<R>(from, block, lane, acc);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) store(sums[r] + lane, acc[r]);
    }
    const int channel = tile * TILE, count = std::min(TILE, num_channels - channel);
    for (int r = 0; r < num_rows; ++r) to.put(first_row + r, channel, count, sums[r]);
}

template <class F>
void Quantized<F>::multiply_group(int tile, const Int8Rows<Block>& x, int first_row, const Target& to) const {
    switch (x.rows_in_group(first_row)) {
        case 1: return multiply_tile<1>(tile, x, first_row, to);
        case 2: return multiply_tile<2>(tile, x, first_row, to);
        case 3: case 4: return multiply_tile<4>(tile, x, first_row, to);
        case 5: case 6: return multiply_tile<6>(tile, x, first_row, to);
        case 7: case 8: return multiply_tile<8>(tile, x, first_row, to);
        case 9: case 10: return multiply_tile<10>(tile, x, first_row, to);
        default: return multiply_tile<ROW_GROUP>(tile, x, first_row, to);
    }
}

template <class F>
void Quantized<F>::multiply(int first, int last, const Input& x, int num_rows, const Target& to) const {
    const Int8Rows<Block>& rows = std::get<const Int8Rows<Block>&>(std::tie(x.blocks, x.super_blocks));
    int size = last - first;  // few rows: all tiles, as they lie in memory
    if (num_rows > rows.group) size = std::max(1, int(TILE_GROUP_BYTES / tile_bytes_));
    for (int tile = first; tile < last; tile += size)
        for (int row = 0; row < num_rows; row += rows.group) {
            const int end = std::min(tile + size, last);
#if DP_HAS_AMX
            if (has_amx() && rows.rows_in_group(row) >= AMX_MIN_ROWS) {
                multiply_group_amx(tile, end, rows, row, to);
                continue;
            }
#endif
            for (int member = tile; member < end; ++member) multiply_group(member, rows, row, to);
        }
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
    if ((tile + 1) * TILE > num_channels) std::memset(data_ + tile * tile_bytes_, 0, tile_bytes_);
    for (int lane = 0; lane < TILE && tile * TILE + lane < num_channels; ++lane) {
        const uint8_t* block = source + size_t(tile * TILE + lane) * units_ * F::FILE_BYTES;
        uint8_t* to = data_ + tile * tile_bytes_;
        for (int index = 0; index < units_; ++index, block += F::FILE_BYTES, to += F::UNIT_BYTES) {
            Scales::put(to, lane, block);
            is_finite = is_finite && Scales::is_finite(to, lane);
            for (int sub = 0; sub < Scales::SUBS; ++sub) {
                uint8_t integers[BLOCK_INPUTS];
                F::integers(block, sub, integers);
                put_integers<F::BITS>(to + Scales::BYTES + sub * F::PAYLOAD, lane, integers);
            }
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
