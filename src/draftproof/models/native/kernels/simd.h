// Vectors, fused multiply-add, exp, and the two storage types.
//
// Two vector types: `vec8`, eight floats on every machine, in which all reductions are defined, so that their
// order (and with it every bit) does not depend on the processor; and `vecw`, as wide as the machine likes, for
// work in which the lanes never meet (matrix products, elementwise functions).
// Compiled with -ffp-contract=off: a product and a sum are fused where, and only where, `fma` is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef DP_WIDE
#if defined(__AVX512F__)
#define DP_WIDE 16
#elif defined(__aarch64__)
#define DP_WIDE 4
#else
#define DP_WIDE 8
#endif
#endif

namespace dp {

constexpr int LANES = 8;
constexpr int WIDE = DP_WIDE;

typedef float vec8 __attribute__((vector_size(32)));
typedef int32_t int8v __attribute__((vector_size(32)));
typedef float vec4 __attribute__((vector_size(16)));
typedef uint16_t half8 __attribute__((vector_size(16)));
typedef float vecw __attribute__((vector_size(4 * DP_WIDE)));
typedef int32_t intw __attribute__((vector_size(4 * DP_WIDE)));

template <class V> struct IntOf;
template <> struct IntOf<vec8> { typedef int8v type; };
#if DP_WIDE != 8
template <> struct IntOf<vecw> { typedef intw type; };
#endif

template <class V> inline V load(const void* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class V> inline void store(void* to, V value) { std::memcpy(to, &value, sizeof value); }

template <class V> inline V splat(float value) { return value - V{}; }

// a * b + c with one rounding. Every machine must give the same bits here, so the last branch never splits it.
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

template <class V> inline V fma(V a, V b, V c) {
#if !defined(DP_NO_INTRINSICS)  // a switch for tests
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64) return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#endif
#if defined(__FMA__)
    if constexpr (sizeof(V) == 32) return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#endif
#if defined(__aarch64__)
    if constexpr (sizeof(V) == 16) return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
#endif
    V out;
    for (size_t lane = 0; lane < sizeof(V) / 4; ++lane) out[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return out;
}

// Sum of eight lanes, in the one order used everywhere: ((0+2)+(1+3)) + ((4+6)+(5+7)).
inline float sum_lanes(vec8 v) { return ((v[0] + v[2]) + (v[1] + v[3])) + ((v[4] + v[6]) + (v[5] + v[7])); }

inline float max_lanes(vec8 v) {
    const vec4 a = __builtin_shufflevector(v, v, 0, 1, 2, 3), b = __builtin_shufflevector(v, v, 4, 5, 6, 7);
    const vec4 m = a > b ? a : b;
    const float x = m[0] > m[1] ? m[0] : m[1], y = m[2] > m[3] ? m[2] : m[3];
    return x > y ? x : y;
}

// exp(x) to about 1 ulp for |x| < 87; x is clamped to ±87. A NaN stays one. Range reduction by ln 2 in two parts,
// then a polynomial of degree 6 in Horner form; the scalar form in reference.h spells out the same steps.
constexpr float EXP_LIMIT = 87.0f, LOG2_E = 1.44269504f, LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;
constexpr float ROUNDER = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
constexpr float EXP_TERMS[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                               4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

template <class V> inline V exp_of(V x) {
    typedef typename IntOf<V>::type I;
    x = x < splat<V>(-EXP_LIMIT) ? splat<V>(-EXP_LIMIT) : x;
    x = x > splat<V>(EXP_LIMIT) ? splat<V>(EXP_LIMIT) : x;
    const V shifted = fma(x, splat<V>(LOG2_E), splat<V>(ROUNDER));
    const V whole = shifted - splat<V>(ROUNDER);
    V rest = fma(whole, splat<V>(-LN2_HIGH), x);
    rest = fma(whole, splat<V>(-LN2_LOW), rest);
    V poly = splat<V>(EXP_TERMS[0]);
    for (int term = 1; term < 6; ++term) poly = fma(poly, rest, splat<V>(EXP_TERMS[term]));
    const V value = fma(poly, rest * rest, rest) + splat<V>(1.0f);
    return value * (V)(((I)shifted << 23) + (I)(splat<V>(1.0f)));  // the low bits of `shifted` hold the exponent
}

// A weight or a cache entry: float, or bfloat16 as its 16 bits.
struct bf16 { uint16_t bits; };

inline float to_float(float value) { return value; }
inline float to_float(bf16 value) {
    const uint32_t bits = uint32_t(value.bits) << 16;
    return load<float>(&bits);
}

// IEEE half precision, read and written only while weights are packed.
struct f16 { uint16_t bits; };

inline float to_float(f16 value) {
    const uint32_t sign = uint32_t(value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;
    if (rest >= 0x7c00u) {
        const uint32_t bits = sign | 0x7f800000u | (rest & 0x3ffu) << 13;  // infinity or NaN
        return load<float>(&bits);
    }
    const uint32_t shifted = rest << 13;  // the exponent is still biased by 15: 2^112 mends that, subnormals too
    const float magnitude = load<float>(&shifted) * 0x1p112f;
    return sign ? -magnitude : magnitude;
}

template <class T> T from_float(float value);
template <> inline float from_float<float>(float value) { return value; }
template <> inline bf16 from_float<bf16>(float value) {  // to nearest, ties to even; a NaN stays one
    const uint32_t bits = load<uint32_t>(&value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{uint16_t((bits >> 16) | 0x40u)};
    return bf16{uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <> inline f16 from_float<f16>(float value) {  // likewise
    const uint32_t bits = load<uint32_t>(&value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return f16{uint16_t(sign | 0x7e00u)};
    if (magnitude >= 0x477ff000u) return f16{uint16_t(sign | 0x7c00u)};  // rounds to 2^16 or more
    if (magnitude >= 0x38800000u)
        return f16{uint16_t(sign | (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13)};
    const float sum = load<float>(&magnitude) + 0.5f;  // the sum is a multiple of 2^-24, as subnormals are
    return f16{uint16_t(sign | (load<uint32_t>(&sum) - 0x3f000000u))};
}

// Neighbouring elements as two vectors. Of floats `first` holds the lower half; of bfloat16, where one 32-bit word
// holds two elements, it holds those of even index (one load, one shift, one mask).
template <class V> inline void load_span(const float* from, V& first, V& second) {
    first = load<V>(from), second = load<V>(from + sizeof(V) / 4);
}
template <class V> inline void load_span(const bf16* from, V& first, V& second) {
    typedef typename IntOf<V>::type I;
    const I words = load<I>(from);
    first = (V)(words << 16), second = (V)(words & int32_t(0xffff0000u));
}

// Where element `index` of a span of `size` elements stands once it was loaded so and both vectors were stored.
template <class T> inline int span_place(int index, int size) {
    return sizeof(T) == 4 ? index : index % 2 * (size / 2) + index / 2;
}

// Eight floats as bfloat16 bits, one a lane; the same rounding as from_float.
inline int8v bf16_bits(vec8 value) {
    const int8v bits = (int8v)value, rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const int8v kept = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded;
    return (kept >> 16) & 0xffff;
}

inline void store8(float* to, vec8 value) { store(to, value); }
inline void store8(bf16* to, vec8 value) { store(to, __builtin_convertvector(bf16_bits(value), half8)); }

}  // namespace dp
