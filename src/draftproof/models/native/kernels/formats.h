// GGUF's quantised types as the kernels keep them: tiles of sixteen channels, no weight's value changed.
//
// A tile is a row of units. A unit holds the inputs of one block of the file (32, or 256 in K-quants) for all
// sixteen channels: first their scales, then for each 32 inputs the integers:
//   low four bits   4 x 64 bytes; in vector j, four bytes a channel: inputs 4j .. 4j + 3 in the low halves of the
//                   bytes, inputs 16 + 4j .. in the high ones
//   a fifth bit     64 bytes, four a channel: bit j of byte i belongs to input 4j + i
//   two bits more   2 x 64 bytes; in vector h, bits 2j and 2j + 1 of byte i belong to input 16h + 4j + i
//   all eight bits  8 x 64 bytes; vector j holds inputs 4j .. 4j + 3
// Integers are unsigned; `OFFSET` is what must be subtracted from them.
#pragma once

#include <cmath>
#include <type_traits>

#include "int8.h"

namespace dp {

constexpr int TILE = 16;                  // channels that lie together
constexpr int GROUPS = BLOCK_INPUTS / 4;  // vectors of a sub-block, four inputs each

// Numbers of the types in a GGUF file; mirrors draftproof.checkpoints.gguf.TENSOR_TYPES.
enum SourceType {
    SOURCE_F32 = 0, SOURCE_F16 = 1, SOURCE_Q4_0 = 2, SOURCE_Q4_1 = 3, SOURCE_Q5_0 = 6, SOURCE_Q5_1 = 7,
    SOURCE_Q8_0 = 8, SOURCE_Q4_K = 12, SOURCE_Q5_K = 13, SOURCE_Q6_K = 14, SOURCE_BF16 = 30
};

template <int Bits> constexpr int payload_bytes() {  // of a sub-block
    return Bits == 8 ? GROUPS * 64 : 256 + (Bits - 4) * 64;
}

// The integers of one sub-block, lanes [lane, lane + WIDE) of its tile.
template <int Bits> inline void unpack(const uint8_t* from, int lane, intw (&w)[GROUPS]) {
    const auto vector = [&](int index) __attribute__((always_inline)) {
        return load<intw>(from + index * 4 * TILE + lane * 4);
    };
    if constexpr (Bits == 8) {
#pragma GCC unroll 8
        for (int group = 0; group < GROUPS; ++group) w[group] = vector(group);
        return;
    }
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group) {
        const intw both = vector(group);
        w[group] = both & 0x0f0f0f0f;
        w[group + 4] = (both >> 4) & 0x0f0f0f0f;
    }
    if constexpr (Bits == 5) {
        const intw high = vector(4);
#pragma GCC unroll 8
        for (int group = 0; group < GROUPS; ++group)
            w[group] |= (group < 4 ? high << (4 - group) : high >> (group - 4)) & 0x10101010;
    }
    if constexpr (Bits == 6) {
#pragma GCC unroll 8
        for (int group = 0; group < GROUPS; ++group) {
            const intw high = vector(4 + group / 4);
            const int shift = 4 - 2 * (group % 4);
            w[group] |= (shift > 0 ? high << shift : high >> -shift) & 0x30303030;
        }
    }
}

// Writes the integers of one sub-block of one channel: words of four inputs, TILE words apart.
template <int Bits> inline void put_integers(uint8_t* to, int channel, const uint8_t* integers) {
    const auto word = [&](int group) { return load<uint32_t>(integers + 4 * group); };
    const auto put = [&](int vector, uint32_t word) { store(to + (vector * TILE + channel) * 4, word); };
    if constexpr (Bits == 8) {
        for (int group = 0; group < GROUPS; ++group) put(group, word(group));
        return;
    }
    for (int group = 0; group < 4; ++group)
        put(group, (word(group) & 0x0f0f0f0fu) | (word(group + 4) & 0x0f0f0f0fu) << 4);
    if constexpr (Bits == 5) {
        uint32_t high = 0;
        for (int group = 0; group < GROUPS; ++group) high |= (word(group) >> 4 & 0x01010101u) << group;
        put(4, high);
    }
    if constexpr (Bits == 6)
        for (int half = 0; half < 2; ++half) {
            uint32_t high = 0;
            for (int group = 0; group < 4; ++group) high |= (word(4 * half + group) >> 4 & 0x03030303u) << 2 * group;
            put(4 + half, high);
        }
}

template <int Bits> inline int get_integer(const uint8_t* from, int channel, int input) {
    const int group = input / 4, byte = channel * 4 + input % 4;
    if constexpr (Bits == 8) return from[group * 64 + byte];
    int value = (from[group % 4 * 64 + byte] >> (group < 4 ? 0 : 4)) & 15;
    if constexpr (Bits == 5) value |= ((from[256 + byte] >> group) & 1) << 4;
    if constexpr (Bits == 6) value |= ((from[256 + group / 4 * 64 + byte] >> (2 * (group % 4))) & 3) << 4;
    return value;
}

typedef uint16_t halfw __attribute__((vector_size(2 * DP_WIDE)));
typedef uint8_t bytew __attribute__((vector_size(DP_WIDE)));
typedef int8_t sbytew __attribute__((vector_size(DP_WIDE)));

// Compilers take these conversions apart, so they are named where they matter.
inline vecw load_halves(const void* from) {
#if !defined(DP_NO_INTRINSICS) && defined(__AVX512F__) && DP_WIDE == 16
    return (vecw)_mm512_maskz_cvtph_ps(0xffff, (__m256i)load<halfw>(from));
#elif !defined(DP_NO_INTRINSICS) && defined(__F16C__) && DP_WIDE == 8
    return (vecw)_mm256_cvtph_ps((__m128i)load<halfw>(from));
#else
    const intw bits = __builtin_convertvector(load<halfw>(from), intw);
    const intw magnitude = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
    return (vecw)(sign | (intw)((vecw)magnitude * splat<vecw>(0x1p112f)));  // finite: packing made sure of it
#endif
}
template <class V> inline vecw load_integers(const void* from) {
    constexpr bool IS_SIGNED = std::is_same_v<V, sbytew>;
#if !defined(DP_NO_INTRINSICS) && defined(__AVX512F__) && DP_WIDE == 16
    const __m128i bytes = (__m128i)load<V>(from);
    const __m512i integers =
        IS_SIGNED ? _mm512_maskz_cvtepi8_epi32(0xffff, bytes) : _mm512_maskz_cvtepu8_epi32(0xffff, bytes);
    return (vecw)_mm512_maskz_cvtepi32_ps(0xffff, integers);
#elif !defined(DP_NO_INTRINSICS) && defined(__AVX2__) && DP_WIDE == 8
    const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(from));
    return (vecw)_mm256_cvtepi32_ps(IS_SIGNED ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#else
    return __builtin_convertvector(__builtin_convertvector(load<V>(from), intw), vecw);
#endif
}

inline float half_at(const uint8_t* from, int index) { return to_float(load<f16>(from + 2 * index)); }

// Scales: what one block of a channel in the file looks like, and the same for a tile. All products below are exact.

// d, and in types with a minimum m: weight = d * integer + m.
template <bool HasMinimum> struct BlockScales {
    static constexpr int SUBS = 1, SCALES_PER_SUB = 1, BYTES = 2 * TILE * (1 + HasMinimum);
    static constexpr bool HAS_MINIMUM = HasMinimum;
    static constexpr int FILE_BYTES = 2 * (1 + HasMinimum);  // they open the block

    vecw d, m;
    BlockScales(const uint8_t* from, int lane) : d(load_halves(from + 2 * lane)), m() {
        if constexpr (HasMinimum) m = load_halves(from + 2 * (TILE + lane));
    }
    vecw scale(int, int) const { return d; }

    static float scale_at(const uint8_t* from, int channel, int, int) { return half_at(from, channel); }
    static float minimum_at(const uint8_t* from, int channel, int) { return half_at(from, TILE + channel); }

    static void put(uint8_t* to, int channel, const uint8_t* block) {
        std::memcpy(to + 2 * channel, block, 2);
        if constexpr (HasMinimum) std::memcpy(to + 2 * (TILE + channel), block + 2, 2);
    }
    static bool is_finite(const uint8_t* from, int channel) {
        return std::isfinite(half_at(from, channel)) && (!HasMinimum || std::isfinite(half_at(from, TILE + channel)));
    }
};

// Q4_K and Q5_K: d and dmin of 256 inputs, and six-bit factors of each 32: weight = d * s * integer - dmin * t.
// Factors t lie four a channel, as `dot4` takes them.
struct SuperScales {
    static constexpr int SUBS = 8, SCALES_PER_SUB = 1, BYTES = 4 * TILE + 2 * SUBS * TILE;
    static constexpr bool HAS_MINIMUM = true;

    const uint8_t* factors;
    int lane;
    vecw d;
    SuperScales(const uint8_t* from, int lane)
        : factors(from + 4 * TILE), lane(lane), d(load_halves(from + 2 * lane)) {}
    vecw scale(int sub, int) const { return d * load_integers<bytew>(factors + sub * TILE + lane); }
    vecw dmin() const { return load_halves(factors - 2 * TILE + 2 * lane); }
    intw minimum_factors(int four) const { return load<intw>(factors + (SUBS + 4 * four) * TILE + 4 * lane); }

    static int minimum_factor_at(int channel, int sub) {
        return 4 * TILE + (SUBS + sub / 4 * 4) * TILE + 4 * channel + sub % 4;
    }
    static float scale_at(const uint8_t* from, int channel, int sub, int) {
        return half_at(from, channel) * float(from[4 * TILE + sub * TILE + channel]);
    }
    static float minimum_at(const uint8_t* from, int channel, int sub) {
        return -half_at(from, TILE + channel) * float(from[minimum_factor_at(channel, sub)]);
    }

    static void put(uint8_t* to, int channel, const uint8_t* block) {
        std::memcpy(to + 2 * channel, block, 2);
        std::memcpy(to + 2 * (TILE + channel), block + 2, 2);
        const uint8_t* packed = block + 4;  // twelve bytes: eight times six bits, twice
        for (int sub = 0; sub < SUBS; ++sub) {
            uint8_t scale, minimum;
            if (sub < 4) {
                scale = packed[sub] & 63, minimum = packed[sub + 4] & 63;
            } else {
                scale = uint8_t((packed[sub + 4] & 15) | (packed[sub - 4] >> 6) << 4);
                minimum = uint8_t((packed[sub + 4] >> 4) | (packed[sub] >> 6) << 4);
            }
            to[4 * TILE + sub * TILE + channel] = scale;
            to[minimum_factor_at(channel, sub)] = minimum;
        }
    }
    static bool is_finite(const uint8_t* from, int channel) {
        return std::isfinite(half_at(from, channel)) && std::isfinite(half_at(from, TILE + channel));
    }
};

// Q6_K: d of 256 inputs and signed factors of each 16: weight = d * s * integer.
struct SignedScales {
    static constexpr int SUBS = 8, SCALES_PER_SUB = 2, BYTES = 2 * TILE + 2 * SUBS * TILE;
    static constexpr bool HAS_MINIMUM = false;

    const uint8_t* factors;
    vecw d;
    SignedScales(const uint8_t* from, int lane) : factors(from + 2 * TILE + lane), d(load_halves(from + 2 * lane)) {}
    vecw scale(int sub, int half) const { return d * load_integers<sbytew>(factors + (2 * sub + half) * TILE); }

    static float scale_at(const uint8_t* from, int channel, int sub, int half) {
        return half_at(from, channel) * float(int8_t(from[2 * TILE + (2 * sub + half) * TILE + channel]));
    }
    static float minimum_at(const uint8_t*, int, int) { return 0.0f; }

    static void put(uint8_t* to, int channel, const uint8_t* block) {
        std::memcpy(to + 2 * channel, block + 208, 2);
        for (int index = 0; index < 16; ++index) to[2 * TILE + index * TILE + channel] = block[192 + index];
    }
    static bool is_finite(const uint8_t* from, int channel) { return std::isfinite(half_at(from, channel)); }
};

// A type: its scales, bits of an integer, what is subtracted from it, and how the file's blocks hold the integers.
template <class ScalesOf, int BitsOf, int OffsetOf, int FileBytes> struct Format {
    typedef ScalesOf Scales;
    static constexpr int BITS = BitsOf, OFFSET = OffsetOf, FILE_BYTES = FileBytes;
    static constexpr int INPUTS = Scales::SUBS * BLOCK_INPUTS;
    static constexpr int PAYLOAD = payload_bytes<BITS>();
    static constexpr bool IS_SUPER = Scales::SUBS > 1;
    static constexpr int UNIT_BYTES = Scales::BYTES + Scales::SUBS * PAYLOAD;
};

// `integers` writes the 32 integers of a sub-block, one a byte, unsigned.

// Halves of sixteen bytes: the low ones first, then the high ones.
inline void halves_of(const uint8_t* bytes, uint8_t* to) {
    for (int k = 0; k < 16; ++k) to[k] = bytes[k] & 15, to[k + 16] = bytes[k] >> 4;
}
// Adds a fifth bit to each integer.
inline void add_fifth_bits(const uint8_t* bits, uint8_t* to) {
    const uint32_t all = load<uint32_t>(bits);
    for (int k = 0; k < BLOCK_INPUTS; ++k) to[k] = uint8_t(to[k] | (all >> k & 1) << 4);
}

struct Q4_0 : Format<BlockScales<false>, 4, 8, 18> {
    static void integers(const uint8_t* block, int, uint8_t* to) { halves_of(block + 2, to); }
};
struct Q4_1 : Format<BlockScales<true>, 4, 0, 20> {
    static void integers(const uint8_t* block, int, uint8_t* to) { halves_of(block + 4, to); }
};
struct Q5_0 : Format<BlockScales<false>, 5, 16, 22> {
    static void integers(const uint8_t* block, int, uint8_t* to) {
        halves_of(block + 6, to);
        add_fifth_bits(block + 2, to);
    }
};
struct Q5_1 : Format<BlockScales<true>, 5, 0, 24> {
    static void integers(const uint8_t* block, int, uint8_t* to) {
        halves_of(block + 8, to);
        add_fifth_bits(block + 4, to);
    }
};
struct Q8_0 : Format<BlockScales<false>, 8, 128, 34> {
    static void integers(const uint8_t* block, int, uint8_t* to) {
        for (int k = 0; k < BLOCK_INPUTS; ++k) to[k] = block[2 + k] ^ 0x80;
    }
};
struct Q4_K : Format<SuperScales, 4, 0, 144> {
    static void integers(const uint8_t* block, int sub, uint8_t* to) {
        const uint8_t* bytes = block + 16 + sub / 2 * 32;
        const int shift = sub % 2 * 4;
        for (int k = 0; k < BLOCK_INPUTS; ++k) to[k] = bytes[k] >> shift & 15;
    }
};
struct Q5_K : Format<SuperScales, 5, 0, 176> {
    static void integers(const uint8_t* block, int sub, uint8_t* to) {
        const uint8_t *bytes = block + 48 + sub / 2 * 32, *high = block + 16;
        const int shift = sub % 2 * 4;
        for (int k = 0; k < BLOCK_INPUTS; ++k) to[k] = uint8_t((bytes[k] >> shift & 15) | (high[k] >> sub & 1) << 4);
    }
};
struct Q6_K : Format<SignedScales, 6, 32, 210> {
    static void integers(const uint8_t* block, int sub, uint8_t* to) {
        const int half = sub / 4, quarter = sub % 4, shift = quarter / 2 * 4;
        const uint8_t *low = block + 64 * half + quarter % 2 * 32, *high = block + 128 + 32 * half;
        for (int k = 0; k < BLOCK_INPUTS; ++k)
            to[k] = uint8_t((low[k] >> shift & 15) | (high[k] >> 2 * quarter & 3) << 4);
    }
};

}  // namespace dp
