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

#include "memory.h"
#include "simd.h"
#include "threads.h"

namespace dp {

constexpr int PANEL = 2 * WIDE;   // channels of a panel
constexpr int K_BLOCK_MAX = 512;  // inputs of a block at most
constexpr int ROW_TILE = 6;       // rows that a panel is multiplied with at a time
constexpr int ROW_BLOCK = 48;     // rows whose sums are kept while the inputs are walked through
constexpr int PANEL_GROUP = 8;    // panels that share a row tile while it lies in the first-level cache

inline int k_block_of(int num_inputs) {
    const int blocks = (num_inputs + K_BLOCK_MAX - 1) / K_BLOCK_MAX;
    return int(round_up((num_inputs + blocks - 1) / blocks, 4));
}

// Where channel n of a matrix lies. Two matrices may be interleaved: `half` of each panel belongs to one of them.
enum class Layout { whole, low_half, high_half };

template <class T> struct Matrix {
    int num_inputs = 0, num_channels = 0, num_panels = 0, k_block = 0;
    T* data = nullptr;
    float* bias = nullptr;  // in panel order, or null

    static size_t bytes(int inputs, int channels) {
        const size_t panels = (channels + PANEL - 1) / PANEL;
        return panels * PANEL * (sizeof(T) * inputs + sizeof(float)) + 2 * LINE_BYTES;
    }

    void allocate_in(Arena& arena, int inputs, int channels, bool with_bias) {
        num_inputs = inputs, num_channels = channels;
        num_panels = (channels + PANEL - 1) / PANEL;
        k_block = k_block_of(inputs);
        const size_t count = size_t(num_panels) * PANEL * inputs;
        data = static_cast<T*>(arena.take(count * sizeof(T)));
        const size_t last_panel = count / num_panels;  // it may have channels that nobody fills
        std::memset(static_cast<void*>(data + count - last_panel), 0, last_panel * sizeof(T));
        if (!with_bias) return;
        bias = static_cast<float*>(arena.take(size_t(num_panels) * PANEL * sizeof(float)));
        std::memset(bias, 0, size_t(num_panels) * PANEL * sizeof(float));
    }

    const T* panel(int index) const { return data + size_t(index) * PANEL * num_inputs; }

    // Index of channel n among the panels' channels.
    static int place(int channel, Layout layout) {
        if (layout == Layout::whole) return channel;
        return channel / WIDE * PANEL + (layout == Layout::high_half ? WIDE : 0) + channel % WIDE;
    }

    // Position of a channel (lane of the panel) in the words of one input.
    static int slot(int lane) {
        if (sizeof(T) == sizeof(float)) return lane;
        return lane < WIDE ? 2 * lane : 2 * (lane - WIDE) + 1;
    }

    T& at(int place, int input) {
        return data[(size_t(place / PANEL) * num_inputs + input) * PANEL + slot(place % PANEL)];
    }
    float weight(int place, int input) const { return to_float(const_cast<Matrix*>(this)->at(place, input)); }
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

// Rows of activations or of results: `stride` floats from one to the next.
struct Rows {
    float* data;
    size_t stride;
    float* row(int index) const { return data + size_t(index) * stride; }
};

constexpr int PREFETCH_BYTES = 2048;

// sums[r] (+)= block of w times x[r], for R rows and P panels; sums holds P * PANEL floats of a row together.
template <class T, int R, int P>
[[gnu::noinline]] void multiply_block(const T* w, size_t panel_stride, const Rows& x, int k_count, bool first, const Rows& sums) {
    vecw acc[R][2 * P];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int half = 0; half < 2 * P; ++half) acc[r][half] = vecw{};
#pragma GCC unroll 4
    for (int k = 0; k < k_count; ++k) {
#pragma GCC unroll 16
        for (int p = 0; p < P; ++p) {
            const T* words = w + p * panel_stride + size_t(k) * PANEL;
            vecw low, high;
            read_pair(words, low, high);
            __builtin_prefetch(reinterpret_cast<const char*>(words) + PREFETCH_BYTES);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const vecw value = splat<vecw>(x.data[r * x.stride + k]);
                acc[r][2 * p] = fma(low, value, acc[r][2 * p]);
                acc[r][2 * p + 1] = fma(high, value, acc[r][2 * p + 1]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
        for (int half = 0; half < 2 * P; ++half) {
            float* sum = sums.row(r) + half * WIDE;
            store(sum, first ? acc[r][half] : load<vecw>(sum) + acc[r][half]);
        }
}

template <class T, int P>
inline void multiply_rows(int num_rows, const T* w, size_t panel_stride, const Rows& x, int k_count, bool first,
                          const Rows& sums) {
    switch (num_rows) {
        case 1: return multiply_block<T, 1, P>(w, panel_stride, x, k_count, first, sums);
        case 2: return multiply_block<T, 2, P>(w, panel_stride, x, k_count, first, sums);
        case 3: return multiply_block<T, 3, 1>(w, panel_stride, x, k_count, first, sums);
        case 4: return multiply_block<T, 4, 1>(w, panel_stride, x, k_count, first, sums);
        case 5: return multiply_block<T, 5, 1>(w, panel_stride, x, k_count, first, sums);
        default: return multiply_block<T, 6, 1>(w, panel_stride, x, k_count, first, sums);
    }
}

// How `num_rows` rows are cut into tiles of nearly equal size.
inline int tile_rows(int num_rows) {
    const int tiles = (num_rows + ROW_TILE - 1) / ROW_TILE;
    return (num_rows + tiles - 1) / tiles;
}

// The panels [first, last) times all rows. `finish(panel, row, sums)` receives the PANEL sums of each row.
template <class T, class Finish>
void multiply_panels(const Matrix<T>& matrix, int first, int last, const Rows& x, int num_rows, Finish finish) {
    alignas(LINE_BYTES) float storage[ROW_BLOCK * PANEL_GROUP * PANEL];
    const size_t panel_stride = size_t(PANEL) * matrix.num_inputs;
    const int group_size = num_rows <= 2 ? 2 : num_rows <= 2 * ROW_TILE ? 1 : PANEL_GROUP;
    for (int panel = first; panel < last; panel += group_size) {
        const int group = last - panel < group_size ? last - panel : group_size;
        for (int row = 0; row < num_rows; row += ROW_BLOCK) {
            const int block = num_rows - row < ROW_BLOCK ? num_rows - row : ROW_BLOCK;
            const int tile = tile_rows(block);
            for (int k = 0; k < matrix.num_inputs; k += matrix.k_block) {
                const int k_left = matrix.num_inputs - k, k_count = k_left < matrix.k_block ? k_left : matrix.k_block;
                const T* w = matrix.panel(panel) + size_t(k) * PANEL;
                for (int r = 0; r < block; r += tile) {
                    const int rows = block - r < tile ? block - r : tile;
                    const Rows tile_x{x.row(row + r) + k, x.stride};
                    float* sums = storage + r * PANEL_GROUP * PANEL;
                    if (rows <= 2 && group == 2) {
                        multiply_rows<T, 2>(rows, w, panel_stride, tile_x, k_count, k == 0, {sums, PANEL_GROUP * PANEL});
                        continue;
                    }
                    for (int g = 0; g < group; ++g) {
                        multiply_rows<T, 1>(rows, w + g * panel_stride, panel_stride, tile_x, k_count, k == 0,
                                            {sums + g * PANEL, PANEL_GROUP * PANEL});
                    }
                }
            }
            for (int r = 0; r < block; ++r)
                for (int g = 0; g < group; ++g)
                    finish(panel + g, row + r, storage + (r * PANEL_GROUP + g) * PANEL);
        }
    }
}

// What becomes of the sums of a panel. Each adds the bias first.
template <class T> inline void sums_with_bias(const Matrix<T>& matrix, int panel, const float* sums, vecw& low, vecw& high) {
    low = load<vecw>(sums), high = load<vecw>(sums + WIDE);
    if (matrix.bias) {
        low = low + load<vecw>(matrix.bias + size_t(panel) * PANEL);
        high = high + load<vecw>(matrix.bias + size_t(panel) * PANEL + WIDE);
    }
}

template <class T> struct StoreTo {
    const Matrix<T>& matrix;
    Rows out;
    void operator()(int panel, int row, const float* sums) const {
        vecw pair[2];
        sums_with_bias(matrix, panel, sums, pair[0], pair[1]);
        float* to = out.row(row) + size_t(panel) * PANEL;
        const int left = matrix.num_channels - panel * PANEL;
        if (left >= PANEL) {
            store(to, pair[0]);
            store(to + WIDE, pair[1]);
        } else {
            std::memcpy(to, pair, left * sizeof(float));
        }
    }
};

template <class T> struct AddTo {
    const Matrix<T>& matrix;
    Rows out;  // padded to whole panels
    void operator()(int panel, int row, const float* sums) const {
        vecw low, high;
        sums_with_bias(matrix, panel, sums, low, high);
        float* to = out.row(row) + size_t(panel) * PANEL;
        store(to, load<vecw>(to) + low);
        store(to + WIDE, load<vecw>(to + WIDE) + high);
    }
};

// silu(gate) * up of an interleaved matrix: gate channels in the low halves, up channels in the high ones.
template <class T> struct GateTo {
    const Matrix<T>& matrix;
    Rows out;  // padded to whole vectors
    void operator()(int panel, int row, const float* sums) const {
        vecw gate, up;
        sums_with_bias(matrix, panel, sums, gate, up);
        const vecw one = splat<vecw>(1.0f);
        store(out.row(row) + size_t(panel) * WIDE, gate / (one + exp_of(-gate)) * up);
    }
};

template <class T, class Finish>
void multiply(Team& team, const Matrix<T>& matrix, const Rows& x, int num_rows, Finish finish) {
    team.share(matrix.num_panels, [&](int first, int last) {
        multiply_panels(matrix, first, last, x, num_rows, finish);
    });
}

// Copies channels into their places; `source` is row-major [num_channels][num_inputs] of S.
template <class T, class S>
void pack(Team& team, Matrix<T>& matrix, const S* source, int num_channels, int offset, Layout layout) {
    constexpr int GROUP = 8, INPUTS = 256;
    team.share((num_channels + GROUP - 1) / GROUP, [&](int first, int last) {
        for (int k0 = 0; k0 < matrix.num_inputs; k0 += INPUTS) {
            const int k1 = k0 + INPUTS < matrix.num_inputs ? k0 + INPUTS : matrix.num_inputs;
            for (int channel = first * GROUP; channel < last * GROUP && channel < num_channels; ++channel) {
                const S* from = source + size_t(channel) * matrix.num_inputs;
                T* to = &matrix.at(offset + Matrix<T>::place(channel, layout), 0);
                for (int k = k0; k < k1; ++k) to[size_t(k) * PANEL] = from_float<T>(to_float(from[k]));
            }
        }
    });
}

}  // namespace dp
