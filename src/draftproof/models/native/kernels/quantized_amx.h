// The product of quantized.h by AMX: the same exact integers, the same order of the few floating-point operations.
//
// One product takes the inputs that share a scale (32, in Q6_K 16) of sixteen channels and up to sixteen rows. Four
// products make a step; steps run staggered: while the tiles multiply one, the integers of the next are unpacked and
// the sums of the last are scaled.
#pragma once

#include <utility>

#include "quantized.h"

#if DP_HAS_AMX

namespace dp {

// A tile of weights times a group of up to R rows.
template <class F, int R> class AmxProduct {
    typedef typename F::Scales Scales;
    typedef std::conditional_t<F::IS_SUPER, Int8SuperBlock, Int8Block> Block;
    static constexpr int STEP = 4;  // products, each with a tile for its sums
    static constexpr int PER_SUB = Scales::SCALES_PER_SUB;
    static constexpr int RUN = BLOCK_INPUTS / PER_SUB;                              // inputs of a product
    static constexpr int UNITS = F::IS_SUPER ? 1 : STEP;                            // of a round
    static constexpr int STEPS = F::IS_SUPER ? Scales::SUBS * PER_SUB / STEP : 1;   // of a round
    static constexpr int PRODUCT_BYTES = RUN * TILE, DOTS_BYTES = AMX_ROWS * AMX_ROW_BYTES;

  public:
    // `num_units` units from `unit` on; blocks of the same inputs lie together, `num_rows` of them. `sums` gets the
    // results; what it holds behind num_rows means nothing.
    AmxProduct(const uint8_t* unit, int num_units, const Block* rows, int num_rows, float (&sums)[R][TILE])
        : num_rows_(num_rows), sums_(sums) {
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) store(sums_[r], vecw{});
        vecw acc[R];  // over all blocks, or within the current super-block
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r] = vecw{};
        Round last{}, round{unit, rows, std::min(num_units, UNITS)};
        unpack<0>(round, integers_[0]);
        for (int left = num_units - UNITS; round.num_units > 0; left -= UNITS) {
            const Round next{round.unit + UNITS * F::UNIT_BYTES, round.rows + UNITS * num_rows, std::min(left, UNITS)};
            run(std::make_integer_sequence<int, STEPS>(), last, round, next, acc);
            last = round, round = next;
        }
        scale<STEPS - 1>(last, dots_[step_ % 2 ^ 1], acc);
        if constexpr (!F::IS_SUPER) {
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) store(sums_[r], acc[r]);
        }
    }

  private:
    // A super-block, or some blocks one after the other.
    struct Round {
        const uint8_t* unit;
        const Block* rows;
        int num_units;
    };

    template <int... S>
    [[gnu::always_inline]] void run(std::integer_sequence<int, S...>, const Round& last, const Round& round,
                                    const Round& next, vecw (&acc)[R]) {
        (run_step<S>(last, round, next, acc), ...);
    }
    template <int S>
    [[gnu::always_inline]] void run_step(const Round& last, const Round& round, const Round& next, vecw (&acc)[R]) {
        const int parity = step_ % 2, other = parity ^ 1;
        multiply<S>(round, integers_[parity], dots_[parity], std::make_integer_sequence<int, STEP>());
        if constexpr (S + 1 < STEPS) unpack<S + 1>(round, integers_[other]);
        else if (next.num_units > 0) unpack<0>(next, integers_[other]);
        if constexpr (S > 0) scale<S - 1>(round, dots_[other], acc);
        else if (last.num_units > 0) scale<STEPS - 1>(last, dots_[other], acc);
        ++step_;
    }

    // Product `index` of step S of a round: its unit and what of that it takes.
    static constexpr int unit_of(int index) { return F::IS_SUPER ? 0 : index; }
    static constexpr int run_of(int step, int index) { return F::IS_SUPER ? step * STEP + index : 0; }

    template <int S> [[gnu::always_inline]] void unpack(const Round& round, int8_t* to) const {
#pragma GCC unroll 4
        for (int index = 0; index < STEP; index += PER_SUB) {
            if (unit_of(index) >= round.num_units) break;
            const uint8_t* unit = round.unit + unit_of(index) * F::UNIT_BYTES;
            const uint8_t* payload = unit + Scales::BYTES + run_of(S, index) / PER_SUB * F::PAYLOAD;
            const uint8_t* from = run_of(S, index) == 0 ? unit : payload;
#pragma GCC unroll 16
            for (int line = 0; line < payload + F::PAYLOAD - from; line += int(LINE_BYTES))
                __builtin_prefetch(from + PREFETCH_BYTES + line);
            intw w[GROUPS];
            dp::unpack<F::BITS>(payload, 0, w);
#pragma GCC unroll 8
            for (int group = 0; group < GROUPS; ++group) {
                typedef int8_t bytes64 __attribute__((vector_size(AMX_ROW_BYTES)));
                store(to + index * PRODUCT_BYTES + group * AMX_ROW_BYTES, (bytes64)w[group] - int8_t(F::OFFSET));
            }
        }
    }

    template <int S, int... Index>
    [[gnu::always_inline]] void multiply(const Round& round, const int8_t* integers, int8_t* dots,
                                         std::integer_sequence<int, Index...>) const {
        (multiply_one<Index>(round.rows[unit_of(Index) * num_rows_].values + run_of(S, Index) * RUN,
                             integers + Index * PRODUCT_BYTES), ...);
        (tile_store<Index>(dots + Index * DOTS_BYTES, AMX_ROW_BYTES), ...);
    }
    template <int Index> [[gnu::always_inline]] static void multiply_one(const int8_t* rows, const int8_t* integers) {
        tile_zero<Index>();
        tile_load<4 + Index % 2>(rows, sizeof(Block));
        tile_load<6 + Index % 2>(integers, AMX_ROW_BYTES);
        tile_dot_int8<Index, 4 + Index % 2, 6 + Index % 2>();
    }

    template <int S> [[gnu::always_inline]] void scale(const Round& round, const int8_t* dots, vecw (&acc)[R]) const {
#pragma GCC unroll 4
        for (int index = 0; index < STEP; ++index) {
            if (unit_of(index) >= round.num_units) break;
            const Block* block = round.rows + unit_of(index) * num_rows_;
            const Scales scales(round.unit + unit_of(index) * F::UNIT_BYTES, 0);
            const vecw scale = scales.scale(run_of(S, index) / PER_SUB, run_of(S, index) % PER_SUB);
            const int8_t* from = dots + index * DOTS_BYTES;
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const vecw dot = __builtin_convertvector(load<intw>(from + r * AMX_ROW_BYTES), vecw);
                if constexpr (F::IS_SUPER) {
                    acc[r] = fma(dot, scale, acc[r]);
                } else {
                    acc[r] = fma(dot, scale * splat<vecw>(block[r].scale), acc[r]);
                    if constexpr (Scales::HAS_MINIMUM)
                        acc[r] = fma(scales.m, splat<vecw>(block[r].scaled_sum), acc[r]);
                }
            }
        }
        if constexpr (F::IS_SUPER && S == STEPS - 1) {
            const Scales scales(round.unit, 0);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const Block& block = round.rows[r];
                const vecw part = with_minima(scales, block, acc[r]);
                store(sums_[r], fma(part, splat<vecw>(block.scale), load<vecw>(sums_[r])));
                acc[r] = vecw{};
            }
        }
    }

    const int num_rows_;
    int step_ = 0;
    float (&sums_)[R][TILE];
    // While one half is filled the other is read.
    alignas(LINE_BYTES) int8_t integers_[2][STEP * PRODUCT_BYTES];
    alignas(LINE_BYTES) int8_t dots_[2][STEP * DOTS_BYTES];
};

template <class F>
template <int R>
[[gnu::noinline]] void Quantized<F>::multiply_tile_amx(int tile, const Int8Rows<Block>& x, int first_row,
                                                       const Target& to) const {
    alignas(LINE_BYTES) float sums[R][TILE];
    const int num_rows = x.rows_in_group(first_row);
    AmxProduct<F, R>(unit(tile, 0), units_, x.row(first_row), num_rows, sums);
    const int channel = tile * TILE, count = std::min(TILE, num_channels - channel);
    for (int r = 0; r < num_rows; ++r) to.put(first_row + r, channel, count, sums[r]);
}

template <class F>
void Quantized<F>::multiply_group_amx(int first, int last, const Int8Rows<Block>& x, int first_row,
                                      const Target& to) const {
    constexpr int RUN = BLOCK_INPUTS / F::Scales::SCALES_PER_SUB;
    const int num_rows = x.rows_in_group(first_row);
    const Tiles::Shape sums{num_rows, AMX_ROW_BYTES}, rows{num_rows, RUN}, weights{RUN / 4, AMX_ROW_BYTES};
    const Tiles tiles({sums, sums, sums, sums, rows, rows, weights, weights});
    for (int tile = first; tile < last; ++tile) {
        if (num_rows <= 4) multiply_tile_amx<4>(tile, x, first_row, to);
        else if (num_rows <= 8) multiply_tile_amx<8>(tile, x, first_row, to);
        else if (num_rows <= 12) multiply_tile_amx<12>(tile, x, first_row, to);
        else multiply_tile_amx<16>(tile, x, first_row, to);
    }
}

}  // namespace dp

#endif
