// A weight matrix packed for streaming, and its product with rows of activations.
//
// The number that is promised for output channel n and row r, whatever the number of rows, threads or lanes:
//   the inputs k are cut into blocks of `k_block` (a function of K alone); in each block one chain
//   acc = fma(w[n][k], x[r][k], acc) runs from zero with rising k; the blocks are added up with rising k;
//   the bias, where there is one, is added last.
//
// Packed form: panels of 2 * WIDE channels; in a panel, input by input, the channels' weights. A float panel holds
// WIDE channels, then WIDE more. A bfloat16 panel holds WIDE 32-bit words: word j has channel j in its low half
// and channel WIDE + j in its high half, so one load, one shift and one mask give two vectors of floats.
#pragma once

#include "linear.h"

namespace dp {

constexpr int PANEL = 2 * WIDE;   // channels of a panel
constexpr int K_BLOCK_MAX = 256;  // inputs of a block at most
constexpr int ROW_TILE = 6;       // rows that a panel is multiplied with at a time
constexpr int ROW_BLOCK = 48;     // rows whose sums are kept while the inputs are walked through
constexpr int PANEL_GROUP = 8;    // panels that share a row tile while it lies in the first-level cache

inline int k_block_of(int num_inputs) {
    const int blocks = (num_inputs + K_BLOCK_MAX - 1) / K_BLOCK_MAX;
    return int(round_up((num_inputs + blocks - 1) / blocks, 4));
}

// Floats of type T in panels.
template <class T> class Matrix final : public Storage {
  public:
    int k_block;
    T* data;

    Matrix(Arena& arena, int inputs, int channels)
        : Storage(inputs, channels), k_block(k_block_of(inputs)), panels_((channels + PANEL - 1) / PANEL) {
        const size_t panel = size_t(PANEL) * inputs;
        data = static_cast<T*>(arena.take(panels_ * panel * sizeof(T)));
        // The last panel may have channels that nobody fills.
        std::memset(static_cast<void*>(data + (panels_ - 1) * panel), 0, panel * sizeof(T));
    }

    bool reads_blocks() const override { return false; }
    int num_panels() const override { return panels_; }
    void multiply(int first, int last, const Input& x, int num_rows, const Target& to) const override;
    void read_channel(int channel, float* weights) const override {
        for (int input = 0; input < num_inputs; ++input) weights[input] = weight(channel, input);
    }
    Floats reference(const Floats& x) const override;

    const T* panel(int index) const { return data + size_t(index) * PANEL * num_inputs; }

    // Position of a channel (lane of the panel) in the words of one input.
    static int slot(int lane) {
        if (sizeof(T) == sizeof(float)) return lane;
        return lane < WIDE ? 2 * lane : 2 * (lane - WIDE) + 1;
    }

    T& at(int channel, int input) {
        return data[(size_t(channel / PANEL) * num_inputs + input) * PANEL + slot(channel % PANEL)];
    }
    float weight(int channel, int input) const { return to_float(const_cast<Matrix*>(this)->at(channel, input)); }

  private:
    int panels_;
};

inline void read_pair(const float* from, vecw& low, vecw& high) {
    low = load<vecw>(from);
    high = load<vecw>(from + WIDE);
}

inline void read_pair(const bf16* from, vecw& low, vecw& high) {
    const intw words = load<intw>(from);
    low = (vecw)(words << 16);
    high = (vecw)(words & int32_t(0xffff0000u));
}

constexpr int UNROLLED = 4;  // inputs between two requests to memory

// sums[r] (+)= block of w times x[r], for R rows and P panels; sums holds P * PANEL floats of a row together.
// Meanwhile asks for a share of the weights at `ahead`, the whole of the next block if it alone passes over this
// one, half of it if another call does so too: then memory answers while all of them compute.
template <class T, int R, int P, int Calls>
[[gnu::noinline]] void multiply_block(const T* w, size_t panel_stride, const Rows& x, int k_count, bool first,
                                      const Rows& sums, const T* next) {
    constexpr int LINES = UNROLLED * PANEL * int(sizeof(T)) / int(LINE_BYTES) / Calls;
    vecw acc[R][2 * P];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int half = 0; half < 2 * P; ++half) acc[r][half] = vecw{};
    const auto step = [&](int k) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) {
            vecw low, high;
            read_pair(w + p * panel_stride + size_t(k) * PANEL, low, high);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const vecw value = splat<vecw>(x.data[r * x.stride + k]);
                acc[r][2 * p] = fma(low, value, acc[r][2 * p]);
                acc[r][2 * p + 1] = fma(high, value, acc[r][2 * p + 1]);
            }
        }
    };
    const char* ahead = reinterpret_cast<const char*>(next);
    int k = 0;
    for (; k + UNROLLED <= k_count; k += UNROLLED, ahead += LINES * LINE_BYTES) {
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
            for (int line = 0; line < LINES; ++line)
                __builtin_prefetch(ahead + p * panel_stride * sizeof(T) + line * LINE_BYTES);
#pragma GCC unroll 16
        for (int inner = 0; inner < UNROLLED; ++inner) step(k + inner);
    }
    for (; k < k_count; ++k) step(k);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int half = 0; half < 2 * P; ++half) {
            float* sum = sums.row(r) + half * WIDE;
            store(sum, first ? acc[r][half] : load<vecw>(sum) + acc[r][half]);
        }
}

// multiply_block for 1 to ROW_TILE rows of one panel.
template <class T, int Calls>
inline void multiply_tile(int num_rows, const T* w, const Rows& x, int k_count, bool first, const Rows& sums,
                          const T* next) {
    switch (num_rows) {
        case 1: return multiply_block<T, 1, 1, Calls>(w, 0, x, k_count, first, sums, next);
        case 2: return multiply_block<T, 2, 1, Calls>(w, 0, x, k_count, first, sums, next);
        case 3: return multiply_block<T, 3, 1, Calls>(w, 0, x, k_count, first, sums, next);
        case 4: return multiply_block<T, 4, 1, Calls>(w, 0, x, k_count, first, sums, next);
        case 5: return multiply_block<T, 5, 1, Calls>(w, 0, x, k_count, first, sums, next);
        default: return multiply_block<T, 6, 1, Calls>(w, 0, x, k_count, first, sums, next);
    }
}

// One block of one panel times up to ROW_BLOCK rows, in tiles of nearly equal size.
template <class T>
inline void multiply_tiles(int num_rows, const T* w, const Rows& x, int k_count, bool first, const Rows& sums,
                           const T* next) {
    const int num_tiles = (num_rows + ROW_TILE - 1) / ROW_TILE, size = (num_rows + num_tiles - 1) / num_tiles;
    if (num_tiles == 1) return multiply_tile<T, 1>(num_rows, w, x, k_count, first, sums, next);
    for (int row = 0; row < num_rows; row += size) {
        const int rows = num_rows - row < size ? num_rows - row : size;
        const T* share = row < 2 * size ? next + size_t(row / size) * (k_count * PANEL / 2) : w;
        multiply_tile<T, 2>(rows, w, {x.row(row), x.stride}, k_count, first, {sums.row(row), sums.stride}, share);
    }
}

template <class T>
void Matrix<T>::multiply(int first, int last, const Input& input, int num_rows, const Target& to) const {
    const Rows& x = input.floats;
    constexpr size_t STRIDE = PANEL_GROUP * PANEL;
    alignas(LINE_BYTES) float sums[ROW_BLOCK * STRIDE];
    const size_t panel_stride = size_t(PANEL) * num_inputs;
    const int group_size = num_rows <= 2 ? 2 : num_rows <= 2 * ROW_TILE ? 1 : PANEL_GROUP;
    for (int panel = first; panel < last; panel += group_size) {
        const int group = last - panel < group_size ? last - panel : group_size;
        for (int row = 0; row < num_rows; row += ROW_BLOCK) {
            const int block = num_rows - row < ROW_BLOCK ? num_rows - row : ROW_BLOCK;
            for (int k = 0; k < num_inputs; k += k_block) {
                const int k_left = num_inputs - k, k_count = k_left < k_block ? k_left : k_block;
                const T *w = this->panel(panel) + size_t(k) * PANEL, *next = w + size_t(k_count) * PANEL;
                const Rows block_x{x.row(row) + k, x.stride};
                if (num_rows == 1 && group == 2) {
                    multiply_block<T, 1, 2, 1>(w, panel_stride, block_x, k_count, k == 0, {sums, STRIDE}, next);
                } else if (num_rows == 2 && group == 2) {
                    multiply_block<T, 2, 2, 1>(w, panel_stride, block_x, k_count, k == 0, {sums, STRIDE}, next);
                } else {
                    for (int g = 0; g < group; ++g, w += panel_stride) {
                        multiply_tiles(block, w, block_x, k_count, k == 0, {sums + g * PANEL, STRIDE},
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

// Floats as the bits in which T stores them, one element a lane.
template <class T> int8v stored_bits(vec8 value);
template <> inline int8v stored_bits<float>(vec8 value) { return (int8v)value; }
template <> inline int8v stored_bits<bf16>(vec8 value) { return bf16_bits(value); }

// Eight lanes of one input: all of the words there, or their upper or lower halves.
inline void put_lanes(float* to, int8v bits, bool) { store(to, bits); }
inline void put_lanes(bf16* to, int8v bits, bool is_high) {
    const int8v words = load<int8v>(to);
    store(to, is_high ? (words & 0xffff) | bits << 16 : (words & int32_t(0xffff0000u)) | bits);
}

// Up to eight neighbouring channels from `first` on, all inputs. `source` holds their rows, num_inputs apart.
template <class T, class S>
void pack_channels(Matrix<T>& matrix, const S* source, int num_channels, int first) {
    const size_t inputs = matrix.num_inputs;
    size_t k = 0;
    if constexpr (WIDE % LANES == 0) {  // eight lanes of one half of a panel
        const int lane = first % PANEL;
        T* to = matrix.data + (size_t(first / PANEL) * inputs) * PANEL + (sizeof(T) == 4 ? lane : lane % WIDE * 2);
        for (; num_channels == LANES && k + LANES <= inputs; k += LANES) {
            int8v rows[LANES];
            for (int row = 0; row < LANES; ++row) {
                __builtin_prefetch(source + (LANES + row) * inputs + k);  // of the next eight channels
                rows[row] = stored_bits<T>(load8(source + row * inputs + k));
            }
            transpose8(rows);
            for (int step = 0; step < LANES; ++step) put_lanes(to + (k + step) * PANEL, rows[step], lane >= WIDE);
        }
    }
    for (int channel = 0; channel < num_channels; ++channel)
        for (size_t input = k; input < inputs; ++input)
            matrix.at(first + channel, int(input)) = from_float<T>(to_float(source[channel * inputs + input]));
}

// Copies all channels into their places; `source` is row-major [num_channels][num_inputs] of S. Threads share by
// panels: two channels of one panel may lie in one word, which is read, changed and written.
template <class T, class S> void pack(Team& team, Matrix<T>& matrix, const S* source) {
    constexpr int GROUP = WIDE < LANES ? WIDE : LANES;  // neighbours in `source` that are neighbours in a panel
    team.share(matrix.num_panels(), [&](int first, int last) {
        const int end = std::min(last * PANEL, matrix.num_channels);
        for (int channel = first * PANEL; channel < end; channel += GROUP)
            pack_channels(matrix, source + size_t(channel) * matrix.num_inputs, std::min(GROUP, end - channel), channel);
    });
}

}  // namespace dp
