// A weight matrix packed for streaming, and its product with rows of activations.
//
// A word of 32 bits holds one float weight, or two bfloat16 weights of neighbouring inputs, the first in its low half.
// The number that is promised for output channel n and row r, whatever the number of rows, threads or lanes:
//   the inputs k are cut into blocks of `k_block` (a function of K alone); in each block one chain
//   acc = fma(w[n][k], x[r][k], acc) runs from zero, word by word, in a word of two the second input first;
//   the blocks are added up with rising k; the bias, where there is one, is added last.
// Bfloat16 weights meet rows rounded to bfloat16. The order within a word is that of processors which multiply pairs
// by themselves (VDPBF16PS in Intel's manual); these take numbers below the normal range for zero, others do not.
// Where tiles are in use (amx.h) bfloat16 has another order, that of TDPBF16PS in the same manual, for any number of
// rows: inputs are cut into blocks of 32; in each a chain over those of even index and one over those of odd index
// run from zero; acc = acc + (even + odd), from zero on, block by block.
//
// Packed form: panels of 2 * WIDE channels; in a panel, word by word of the inputs, the channels' words.
#pragma once

#include <type_traits>

#include "linear.h"

namespace dp {

constexpr int PANEL = 2 * WIDE;                // channels of a panel
constexpr int K_BLOCK_MAX = 256;               // inputs of a block at most
constexpr int ROW_TILE = WIDE == 16 ? 12 : 6;  // rows that a panel is multiplied with at a time: 24 or 12 sums
constexpr int ROW_BLOCK = 48;                  // rows whose sums are kept while the inputs are walked through
constexpr int PANEL_GROUP = 8;                 // panels that share a row tile while it lies in the first-level cache
constexpr int UNROLLED = 4;                    // words between two requests to memory

inline int k_block_of(int num_inputs) {
    const int blocks = (num_inputs + K_BLOCK_MAX - 1) / K_BLOCK_MAX;
    return int(round_up((num_inputs + blocks - 1) / blocks, 4));
}

// What a word of weights of type T holds, and the activations it is multiplied with. A row of activations is made of
// `Factor`s, in place, by `to_factors`.
template <class T> struct Word;

template <> struct Word<float> {
    static constexpr int INPUTS = 1;
    typedef float Factor;
    static void to_factors(float*, int) {}
    static vecw add_product(intw w, const Factor& x, vecw sum) { return fma((vecw)w, splat<vecw>(x), sum); }
};

template <> struct Word<bf16> {
    static constexpr int INPUTS = 2;
#if defined(__AVX512BF16__) && DP_WIDE == 16 && !defined(DP_NO_INTRINSICS)
    typedef int32_t Factor;
    static void to_factors(float* row, int num_inputs) {
        int k = 0;
        for (; k + 32 <= num_inputs; k += 32)  // a word never lies behind the floats that it is made of
            store(row + k / 2, (intw)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(row + k + 16), _mm512_loadu_ps(row + k)));
        for (; k < num_inputs; k += 2) {
            const bf16 pair[] = {from_float<bf16>(row[k]), from_float<bf16>(k + 1 < num_inputs ? row[k + 1] : 0.0f)};
            std::memcpy(row + k / 2, pair, sizeof pair);
        }
        for (; k % (2 * AMX_ROWS); k += 2) row[k / 2] = 0.0f;
    }
    static vecw add_product(intw w, const Factor& x, vecw sum) {
        return (vecw)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(__m512i)w, (__m512bh)_mm512_set1_epi32(x));
    }
#else
    struct Factor { float low, high; };
    static void to_factors(float* row, int num_inputs) {
        int k = 0;
        for (; k + LANES <= num_inputs; k += LANES) store(row + k, (vec8)(bf16_bits(load<vec8>(row + k)) << 16));
        for (; k < num_inputs; ++k) row[k] = to_float(from_float<bf16>(row[k]));
        if (num_inputs % 2) row[num_inputs] = 0.0f;
    }
    static vecw add_product(intw w, const Factor& x, vecw sum) {
        sum = fma((vecw)(w & int32_t(0xffff0000u)), splat<vecw>(x.high), sum);
        return fma((vecw)(w << 16), splat<vecw>(x.low), sum);
    }
#endif
};

// Weights of type T in panels.
template <class T> class Matrix final : public Storage {
  public:
    static constexpr int INPUTS = Word<T>::INPUTS;
    int num_words, block_words;  // words of a channel, and of a block of it
    int32_t* data;

    Matrix(Arena& arena, int inputs, int channels)
        : Storage(inputs, channels), num_words((inputs + INPUTS - 1) / INPUTS),
          block_words(k_block_of(inputs) / INPUTS), panels_((channels + PANEL - 1) / PANEL),
          panel_words_(USES_AMX && has_amx() ? int(round_up(num_words, AMX_ROWS)) : num_words) {
        const size_t panel = size_t(PANEL) * panel_words_;
        data = static_cast<int32_t*>(arena.take(panels_ * panel * sizeof(int32_t)));
        // The last panel may have channels that nobody fills, and each one words behind its inputs.
        std::memset(data + (panels_ - 1) * panel, 0, panel * sizeof(int32_t));
        for (int index = 0; index < panels_; ++index)
            std::memset(this->panel(index) + size_t(PANEL) * num_words, 0,
                        size_t(PANEL) * (panel_words_ - num_words) * sizeof(int32_t));
    }

    Reads reads() const override { return Reads::floats; }
    void prepare(float* row) const override { Word<T>::to_factors(row, num_inputs); }
    int num_panels() const override { return panels_; }
    void multiply(int first, int last, const Input& x, int num_rows, const Target& to) const override;
    void read_channel(int channel, float* weights) const override {
        for (int input = 0; input < num_inputs; ++input) weights[input] = weight(channel, input);
    }
    Floats reference(const Floats& x) const override;

    int32_t* panel(int index) const { return data + size_t(index) * PANEL * panel_words_; }

    // Words of a channel, PANEL apart.
    int32_t* words(int channel) const { return panel(channel / PANEL) + channel % PANEL; }
    float weight(int channel, int input) const {
        T values[INPUTS];
        std::memcpy(values, words(channel) + size_t(input / INPUTS) * PANEL, sizeof values);
        return to_float(values[input % INPUTS]);
    }

  private:
    static constexpr bool USES_AMX = DP_HAS_AMX && INPUTS == 2;
    float chain(int channel, const Floats& x, int begin, int end) const;  // in reference.h
    float even_and_odd(int channel, const Floats& x, int begin, int end) const;
    void multiply_amx(int first, int last, const Rows& x, int num_rows, const Target& to) const;

    int panels_, panel_words_;
};

// Rows of factors: `stride` factors from one to the next.
template <class T> struct FactorRows {
    const typename Word<T>::Factor* data;
    size_t stride;
    FactorRows from(int row, int word) const { return {data + row * stride + word, stride}; }
};

// sums[r] (+)= block of w times x[r], for R rows and P panels; sums holds P * PANEL floats of a row together.
// Meanwhile asks for a share of the weights at `next`, the whole of the next block if it alone passes over this
// one, half of it if another call does so too: then memory answers while all of them compute.
template <class T, int R, int P, int Calls>
[[gnu::noinline]] void multiply_block(const int32_t* w, size_t panel_stride, const FactorRows<T>& x, int num_words,
                                      bool first, const Rows& sums, const int32_t* next) {
    constexpr int LINES = UNROLLED * PANEL * int(sizeof(int32_t)) / int(LINE_BYTES) / Calls;
    vecw acc[R][2 * P];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int half = 0; half < 2 * P; ++half) acc[r][half] = vecw{};
    const auto step = [&](int word) __attribute__((always_inline)) {
        intw weights[2 * P];
#pragma GCC unroll 16
        for (int half = 0; half < 2 * P; ++half)
            weights[half] = load<intw>(w + half / 2 * panel_stride + size_t(word) * PANEL + half % 2 * WIDE);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
            for (int half = 0; half < 2 * P; ++half)
                acc[r][half] = Word<T>::add_product(weights[half], x.data[r * x.stride + word], acc[r][half]);
    };
    const char* ahead = reinterpret_cast<const char*>(next);
    int word = 0;
    for (; word + UNROLLED <= num_words; word += UNROLLED, ahead += LINES * LINE_BYTES) {
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
            for (int line = 0; line < LINES; ++line)
                __builtin_prefetch(ahead + p * panel_stride * sizeof(int32_t) + line * LINE_BYTES);
#pragma GCC unroll 16
        for (int inner = 0; inner < UNROLLED; ++inner) step(word + inner);
    }
    for (; word < num_words; ++word) step(word);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int half = 0; half < 2 * P; ++half) {
            float* sum = sums.row(r) + half * WIDE;
            store(sum, first ? acc[r][half] : load<vecw>(sum) + acc[r][half]);
        }
}

// multiply_block for 1 to ROW_TILE rows of one panel.
template <class T, int Calls, int R = 1>
inline void multiply_tile(int num_rows, const int32_t* w, const FactorRows<T>& x, int num_words, bool first,
                          const Rows& sums, const int32_t* next) {
    if constexpr (R < ROW_TILE)
        if (num_rows > R) return multiply_tile<T, Calls, R + 1>(num_rows, w, x, num_words, first, sums, next);
    multiply_block<T, R, 1, Calls>(w, 0, x, num_words, first, sums, next);
}

// One block of one panel times up to ROW_BLOCK rows, in tiles of nearly equal size.
template <class T>
inline void multiply_tiles(int num_rows, const int32_t* w, const FactorRows<T>& x, int num_words, bool first,
                           const Rows& sums, const int32_t* next) {
    const int num_tiles = (num_rows + ROW_TILE - 1) / ROW_TILE, size = (num_rows + num_tiles - 1) / num_tiles;
    if (num_tiles == 1) return multiply_tile<T, 1>(num_rows, w, x, num_words, first, sums, next);
    for (int row = 0; row < num_rows; row += size) {
        const int rows = num_rows - row < size ? num_rows - row : size;
        const int32_t* share = row < 2 * size ? next + size_t(row / size) * (num_words * PANEL / 2) : w;
        multiply_tile<T, 2>(rows, w, x.from(row, 0), num_words, first, {sums.row(row), sums.stride}, share);
    }
}

template <class T>
void Matrix<T>::multiply(int first, int last, const Input& input, int num_rows, const Target& to) const {
    if constexpr (USES_AMX)
        if (has_amx()) return multiply_amx(first, last, input.floats, num_rows, to);
    typedef typename Word<T>::Factor Factor;
    const FactorRows<T> x{reinterpret_cast<const Factor*>(input.floats.data),
                          input.floats.stride * sizeof(float) / sizeof(Factor)};
    constexpr size_t STRIDE = PANEL_GROUP * PANEL;
    alignas(LINE_BYTES) float sums[ROW_BLOCK * STRIDE];
    const size_t panel_stride = size_t(PANEL) * panel_words_;
    const int group_size = num_rows <= 2 ? 2 : num_rows <= 2 * ROW_TILE ? 1 : PANEL_GROUP;
    for (int panel = first; panel < last; panel += group_size) {
        const int group = last - panel < group_size ? last - panel : group_size;
        for (int row = 0; row < num_rows; row += ROW_BLOCK) {
            const int block = num_rows - row < ROW_BLOCK ? num_rows - row : ROW_BLOCK;
            for (int word = 0; word < num_words; word += block_words) {
                const int words_left = num_words - word, count = words_left < block_words ? words_left : block_words;
                const int32_t *w = this->panel(panel) + size_t(word) * PANEL, *next = w + size_t(count) * PANEL;
                const FactorRows<T> block_x = x.from(row, word);
                if (num_rows == 1 && group == 2) {
                    multiply_block<T, 1, 2, 1>(w, panel_stride, block_x, count, word == 0, {sums, STRIDE}, next);
                } else if (num_rows == 2 && group == 2) {
                    multiply_block<T, 2, 2, 1>(w, panel_stride, block_x, count, word == 0, {sums, STRIDE}, next);
                } else {
                    for (int g = 0; g < group; ++g, w += panel_stride) {
                        multiply_tiles(block, w, block_x, count, word == 0, {sums + g * PANEL, STRIDE},
                                       g + 1 < group ? w + panel_stride : next);
                    }
                }
            }
            for (int r = 0; r < block; ++r)
                to.put(row + r, panel * PANEL, std::min(group * PANEL, num_channels - panel * PANEL),
                       sums + r * STRIDE);
        }
    }
}

// Eight elements of any stored type as floats.
inline vec8 load8(const float* from) { return load<vec8>(from); }
inline vec8 load8(const bf16* from) { return (vec8)(__builtin_convertvector(load<half8>(from), int8v) << 16); }
inline vec8 load8(const f16* from) {
    const int8v bits = __builtin_convertvector(load<half8>(from), int8v);
    const int8v magnitude = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
    const int8v finite = (int8v)((vec8)magnitude * splat<vec8>(0x1p112f));
    return (vec8)(sign | ((bits & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : finite));
}

// Eight vectors to their transpose: lane j of rows[i] becomes lane i of rows[j].
inline void transpose8(int8v (&rows)[8]) {
    int8v a[8], b[8];
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) {
        a[2 * row] = __builtin_shufflevector(rows[2 * row], rows[2 * row + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        a[2 * row + 1] = __builtin_shufflevector(rows[2 * row], rows[2 * row + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) {
        const int low = row / 2 * 4 + row % 2;  // pairs (0, 2), (1, 3), (4, 6), (5, 7)
        b[2 * row] = __builtin_shufflevector(a[low], a[low + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        b[2 * row + 1] = __builtin_shufflevector(a[low], a[low + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int row = 0; row < 4; ++row) {
        rows[row] = __builtin_shufflevector(b[row], b[row + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        rows[row + 4] = __builtin_shufflevector(b[row], b[row + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

// Eight words of one channel from its weights; the words of T's type, whatever `source` is of.
template <class T, class S> inline int8v words_of(const S* source) {
    if constexpr (sizeof(T) == 4) return (int8v)load8(source);
    if constexpr (sizeof(S) == 2 && !std::is_same_v<S, f16>) return load<int8v>(source);  // as they are
    const vec8 a = load8(source), b = load8(source + LANES);
    const vec8 even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
    const vec8 odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
    return bf16_bits(even) | bf16_bits(odd) << 16;
}

// Up to eight neighbouring channels from `first` on, all inputs. `source` holds their rows, num_inputs apart.
template <class T, class S>
void pack_channels(Matrix<T>& matrix, const S* source, int num_channels, int first) {
    constexpr int INPUTS = Matrix<T>::INPUTS;
    const size_t inputs = matrix.num_inputs, whole = num_channels == LANES ? inputs / (INPUTS * LANES) * LANES : 0;
    int32_t* to = matrix.words(first);
    for (size_t word = 0; word < whole; word += LANES) {
        int8v rows[LANES];
        for (int row = 0; row < LANES; ++row) {
            __builtin_prefetch(source + (LANES + row) * inputs + word * INPUTS);  // of the next eight channels
            rows[row] = words_of<T>(source + row * inputs + word * INPUTS);
        }
        transpose8(rows);
        for (int step = 0; step < LANES; ++step) store(to + (word + step) * PANEL, rows[step]);
    }
    for (int channel = 0; channel < num_channels; ++channel)
        for (size_t word = whole; word < size_t(matrix.num_words); ++word) {
            T values[INPUTS] = {};
            for (size_t input = word * INPUTS; input < std::min(inputs, (word + 1) * INPUTS); ++input)
                values[input % INPUTS] = from_float<T>(to_float(source[channel * inputs + input]));
            std::memcpy(to + word * PANEL + channel, values, sizeof values);
        }
}

// Copies all channels into their places; `source` is row-major [num_channels][num_inputs] of S.
template <class T, class S> void pack(Team& team, Matrix<T>& matrix, const S* source) {
    team.share(matrix.num_panels(), [&](int first, int last) {
        const int end = std::min(last * PANEL, matrix.num_channels);
        for (int channel = first * PANEL; channel < end; channel += LANES)
            pack_channels(matrix, source + size_t(channel) * matrix.num_inputs, std::min(LANES, end - channel), channel);
    });
}

}  // namespace dp
