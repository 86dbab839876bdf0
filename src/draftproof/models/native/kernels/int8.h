// Rows of activations as int8, and the exact integer products that quantised weights are multiplied with.
#pragma once

#include "linear.h"

namespace dp {

constexpr float SMALLEST_BLOCK = 0x1p-100f;  // a block whose largest magnitude is below this counts as zero
constexpr float INT8_LIMIT = 127.0f;

typedef int8_t char8 __attribute__((vector_size(8)));

inline int32_t sum_lanes(int8v v) { return v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7]; }

// 32 floats to one block: scale = largest magnitude / 127, values rounded to nearest, ties to even. A block with a
// NaN or an infinity gets the scale NaN, so that it spoils its own row and no other.
inline void quantize_block(const float* x, Int8Block& to) {
    vec8 parts[4];
    int8v largest = {};
    for (int part = 0; part < 4; ++part) {
        parts[part] = load<vec8>(x + part * LANES);
        const int8v magnitude = (int8v)parts[part] & 0x7fffffff;  // as integers these are ordered, NaN above all
        largest = magnitude > largest ? magnitude : largest;
    }
    int32_t bits = 0;
    for (int lane = 0; lane < LANES; ++lane) bits = largest[lane] > bits ? largest[lane] : bits;
    const float magnitude = load<float>(&bits);
    if (!(magnitude >= SMALLEST_BLOCK && bits < 0x7f800000)) {
        to = {};
        if (bits >= 0x7f800000) to.scale = to.scaled_sum = std::numeric_limits<float>::quiet_NaN();
        return;
    }
    const vec8 inverse = splat<vec8>(INT8_LIMIT / magnitude), rounder = splat<vec8>(ROUNDER);
    int8v values[4];
    for (int part = 0; part < 4; ++part) {
        values[part] = (int8v)(parts[part] * inverse + rounder) - (int8v)rounder;
        store(to.values + part * LANES, __builtin_convertvector(values[part], char8));
    }
    to.scale = magnitude / INT8_LIMIT;
    to.low_sum = sum_lanes(values[0] + values[1]), to.high_sum = sum_lanes(values[2] + values[3]);
    to.scaled_sum = to.scale * float(to.low_sum + to.high_sum);
}

inline void quantize_row(const float* x, int size, Int8Block* to) {
    for (int k = 0; k < size; k += BLOCK_INPUTS) quantize_block(x + k, *to++);
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
