// Rows of activations as int8, and the exact integer products that quantised weights are multiplied with.
#pragma once

#include "linear.h"

namespace dp {

constexpr float SMALLEST_BLOCK = 0x1p-100f;  // a block whose largest magnitude is below this counts as zero
constexpr float INT8_LIMIT = 127.0f;

typedef int8_t char8 __attribute__((vector_size(8)));

inline int32_t max_lanes(int8v v) {
    const auto larger = [](int8v a, int8v b) { return b > a ? b : a; };
    v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
    v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
    return v[0];
}

// The sums of the lanes of two vectors.
inline void sum_lanes(int8v a, int8v b, int16_t* sums) {
    int8v both = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
                 __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    both = both + __builtin_shufflevector(both, both, 2, 3, 0, 1, 6, 7, 4, 5);
    both = both + __builtin_shufflevector(both, both, 1, 0, 3, 2, 5, 4, 7, 6);
    sums[0] = int16_t(both[0]), sums[1] = int16_t(both[4]);
}

// Floats to a block, but for its sums: scale = largest magnitude / 127, values rounded to nearest, ties to even. A
// block with a NaN or an infinity gets the scale NaN, so that it spoils its own row and no other.
template <class B> inline void quantize_values(const float* x, B& to) {
    constexpr int SIZE = sizeof to.values;
    int8v largest = {};
    for (int k = 0; k < SIZE; k += LANES) {
        const int8v magnitude = load<int8v>(x + k) & 0x7fffffff;  // as integers these are ordered, NaN above all
        largest = magnitude > largest ? magnitude : largest;
    }
    const int32_t bits = max_lanes(largest);
    const float magnitude = load<float>(&bits);
    const bool is_finite = bits < 0x7f800000;
    const bool has_values = is_finite && magnitude >= SMALLEST_BLOCK;
    to.scale = has_values ? magnitude / INT8_LIMIT : is_finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    const vec8 inverse = splat<vec8>(has_values ? INT8_LIMIT / magnitude : 0.0f), rounder = splat<vec8>(ROUNDER);
    for (int k = 0; k < SIZE; k += BLOCK_INPUTS) {
        int8v values[4];
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            const int at = k + part * LANES;
            values[part] = (int8v)(load<vec8>(x + at) * inverse + rounder) - (int8v)rounder;
            if (!is_finite) values[part] = int8v{};
            store(to.values + at, __builtin_convertvector(values[part], char8));
        }
        sum_lanes(values[0] + values[1], values[2] + values[3], to.half_sums + k / (2 * LANES));
    }
}

inline void quantize(const float* x, Int8Block& to) {
    quantize_values(x, to);
    to.scaled_sum = to.scale * float(to.half_sums[0] + to.half_sums[1]);
}

inline void quantize(const float* x, Int8SuperBlock& to) {
    quantize_values(x, to);
    for (int sub = 0; sub < Int8SuperBlock::SUBS; ++sub) {
        const int sum = to.half_sums[2 * sub] + to.half_sums[2 * sub + 1];
        to.sums_low[sub] = int8_t(sum & (SUM_STEP - 1)), to.sums_high[sub] = int8_t(sum >> 6);
    }
}

template <class B> inline void quantize_row(const float* x, int row, const Int8Rows<B>& to) {
    B* block = to.row(row);
    const int step = to.rows_in_group(row);
    for (int index = 0; index < to.num_blocks; ++index, x += sizeof block->values) quantize(x, block[index * step]);
}

// Makes of a row of floats all forms that `linear` reads; the floats themselves may change.
inline void prepare_row(float* x, int row, const Linear& linear, const Input& to) {
    if (linear.reads(Reads::blocks)) quantize_row(x, row, to.blocks);
    if (linear.reads(Reads::super_blocks)) quantize_row(x, row, to.super_blocks);
    linear.prepare(x);
}

// acc plus, in each lane, the products of its four unsigned bytes of `w` with the four signed bytes of `x`. Exact.
// Full tells that `w` uses all of its eight bits; else six at most, and two products fit in sixteen bits.
template <bool Full> inline intw dot4(intw acc, intw w, int32_t x) {
    const intw xs = x - intw{};
#if !defined(DP_NO_INTRINSICS)
#if defined(__AVX512VNNI__)
    if constexpr (WIDE == 16) return (intw)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)xs);
#endif
#if defined(__AVX512BW__)
    if constexpr (WIDE == 16) {
        const __m512i ones = _mm512_set1_epi16(1);
        const auto pairs = [&](intw bytes) {
            return (intw)_mm512_madd_epi16(_mm512_maddubs_epi16((__m512i)bytes, (__m512i)xs), ones);
        };
        return acc + (Full ? pairs(w & 0x00ff00ff) + pairs(w & int32_t(0xff00ff00u)) : pairs(w));
    }
#endif
#if defined(__AVXVNNI__)
    if constexpr (WIDE == 8) return (intw)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)w, (__m256i)xs);
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
    if constexpr (WIDE == 8) return (intw)_mm256_dpbusd_epi32((__m256i)acc, (__m256i)w, (__m256i)xs);
#endif
#if defined(__AVX2__)
    if constexpr (WIDE == 8) {
        const __m256i ones = _mm256_set1_epi16(1);
        const auto pairs = [&](intw bytes) {
            return (intw)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)bytes, (__m256i)xs), ones);
        };
        return acc + (Full ? pairs(w & 0x00ff00ff) + pairs(w & int32_t(0xff00ff00u)) : pairs(w));
    }
#endif
#if defined(__ARM_FEATURE_DOTPROD)
    if constexpr (WIDE == 4) {
        const int8x16_t values = vreinterpretq_s8_s32((int32x4_t)xs);
        if constexpr (!Full) return (intw)vdotq_s32((int32x4_t)acc, vreinterpretq_s8_s32((int32x4_t)w), values);
        const intw centred = w ^ int32_t(0x80808080u);  // w - 128; what that leaves out is 64 x, twice
        const int32x4_t rest = vdotq_s32((int32x4_t)acc, vreinterpretq_s8_s32((int32x4_t)centred), values);
        return (intw)vdotq_s32(vdotq_s32(rest, vdupq_n_s8(64), values), vdupq_n_s8(64), values);
    }
#endif
#endif
    for (int shift = 0; shift < 32; shift += 8) acc = acc + ((w >> shift) & 0xff) * int32_t(int8_t(x >> shift));
    return acc;
}

}  // namespace dp
