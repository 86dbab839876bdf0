// Floats to blocks of a file: Q4_0 and Q8_0, with the bits of the `gguf` library, whose arithmetic in float32 this is.
//
// Where the library's own result is undefined (a block whose largest value is below 2^-121, so that 1 / d overflows, or
// is not finite), integers are arbitrary here, too; the scale is then zero, or not finite.
#pragma once

#include "formats.h"

namespace dp {

constexpr int32_t MAGNITUDE = 0x7fffffff;  // all bits of a float but its sign

// The bits of the largest magnitude; those of a NaN are above all.
inline int32_t largest_magnitude(const float* values) {
    int32_t largest = 0;
    for (int k = 0; k < BLOCK_INPUTS; ++k) {
        const int32_t magnitude = load<int32_t>(values + k) & MAGNITUDE;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

inline float inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

inline void round_block(Q4_0, const float* values, uint8_t* to) {
    const int32_t largest = largest_magnitude(values);
    int32_t has_positive = 0, has_negative = 0;
    for (int k = 0; k < BLOCK_INPUTS; ++k) {
        has_positive |= load<int32_t>(values + k) == largest;
        has_negative |= load<int32_t>(values + k) == (largest | ~MAGNITUDE);
    }
    int32_t extreme = has_negative ? largest | ~MAGNITUDE : largest;
    if (has_negative && has_positive)  // the first of them
        for (int k = BLOCK_INPUTS - 1; k >= 0; --k)
            if ((load<int32_t>(values + k) & MAGNITUDE) == largest) extreme = load<int32_t>(values + k);
    const float scale = load<float>(&extreme) / -8.0f, by = inverse(scale);
    store(to, from_float<f16>(scale));
    int32_t integers[BLOCK_INPUTS];
    for (int k = 0; k < BLOCK_INPUTS; ++k) {
        const float shifted = values[k] * by + 8.5f;
        const int32_t integer = int32_t(shifted >= 0.0f && shifted < 17.0f ? shifted : 0.0f);
        integers[k] = integer > 15 ? 15 : integer;
    }
    for (int k = 0; k < 16; ++k) to[2 + k] = uint8_t(integers[k] | integers[k + 16] << 4);
}

inline void round_block(Q8_0, const float* values, uint8_t* to) {
    const int32_t largest = largest_magnitude(values);
    const float scale = load<float>(&largest) / 127.0f, by = inverse(scale);
    store(to, from_float<f16>(scale));
    int32_t integers[BLOCK_INPUTS];
    for (int k = 0; k < BLOCK_INPUTS; ++k) {
        const float scaled = values[k] * by, magnitude = scaled < 0.0f ? -scaled : scaled;
        const int32_t below = int32_t(magnitude < 128.0f ? magnitude : 0.0f);
        const int32_t rounded = magnitude - float(below) >= 0.5f ? below + 1 : below;  // halves away from zero
        integers[k] = scaled < 0.0f ? -rounded : rounded;
    }
    for (int k = 0; k < BLOCK_INPUTS; ++k) to[2 + k] = uint8_t(integers[k]);
}

template <class F, class S> void round_blocks(Team& team, const S* values, size_t num_blocks, uint8_t* to) {
    constexpr size_t PIECE = 1024;
    team.share(int((num_blocks + PIECE - 1) / PIECE), [&](int first, int last) {
        const size_t end = std::min(size_t(last) * PIECE, num_blocks);
        for (size_t block = first * PIECE; block < end; ++block) {
            float floats[BLOCK_INPUTS];
            for (int k = 0; k < BLOCK_INPUTS; ++k) floats[k] = to_float(values[block * BLOCK_INPUTS + k]);
            round_block(F{}, floats, to + block * F::FILE_BYTES);
        }
    });
}

}  // namespace dp
