// The product of matrix.h by AMX, for bfloat16: panels are streamed as they lie, up to 32 rows pass over each at a time.
#pragma once

#include "matrix.h"

namespace dp {

#if DP_HAS_AMX

constexpr int AMX_ROW_BLOCK = 2 * AMX_ROWS;
constexpr int AMX_AHEAD = 4;                      // words of sixteen inputs' pairs that memory is asked for in advance
constexpr size_t PANEL_GROUP_BYTES = 768 << 10;   // panels that rows are multiplied with while they lie in the cache

// sums [rows][PANEL] = panel x rows. Tiles 0 to 3: sums of each sixteen rows and channels; 4, 5: rows; 6, 7: weights.
template <bool Both>
[[gnu::noinline]] inline void multiply_panel_amx(const int32_t* panel, int num_words, const Rows& x, float* sums) {
    constexpr size_t WORD_BYTES = PANEL * sizeof(int32_t), SUMS_STRIDE = PANEL * sizeof(float);
    const size_t stride = x.stride * sizeof(float);
    const char* w = reinterpret_cast<const char*>(panel);
    const float *first = x.data, *second = x.row(AMX_ROWS);
    tile_zero<0>(), tile_zero<1>();
    if constexpr (Both) tile_zero<2>(), tile_zero<3>();
    for (int word = 0; word < num_words; word += AMX_ROWS, w += AMX_ROWS * WORD_BYTES) {
#pragma GCC unroll 32
        for (size_t line = 0; line < AMX_ROWS * WORD_BYTES; line += LINE_BYTES)
            __builtin_prefetch(w + AMX_AHEAD * AMX_ROWS * WORD_BYTES + line);
        tile_load<4>(first + word, stride);
        tile_load<6>(w, WORD_BYTES);
        tile_dot_bf16<0, 4, 6>();
        tile_load<7>(w + AMX_ROW_BYTES, WORD_BYTES);
        tile_dot_bf16<1, 4, 7>();
        if constexpr (Both) {
            tile_load<5>(second + word, stride);
            tile_dot_bf16<2, 5, 6>();
            tile_dot_bf16<3, 5, 7>();
        }
    }
    tile_store<0>(sums, SUMS_STRIDE), tile_store<1>(sums + WIDE, SUMS_STRIDE);
    if constexpr (Both) {
        float* lower = sums + AMX_ROWS * PANEL;
        tile_store<2>(lower, SUMS_STRIDE), tile_store<3>(lower + WIDE, SUMS_STRIDE);
    }
}

#endif

template <class T>
void Matrix<T>::multiply_amx(int first, int last, const Rows& x, int num_rows, const Target& to) const {
#if DP_HAS_AMX
    alignas(LINE_BYTES) float sums[AMX_ROW_BLOCK * PANEL];
    const size_t panel_bytes = size_t(PANEL) * panel_words_ * sizeof(int32_t);
    int size = last - first;  // few rows: all panels, as they lie in memory
    if (num_rows > AMX_ROW_BLOCK) size = std::max(1, int(PANEL_GROUP_BYTES / panel_bytes));
    for (int group = first; group < last; group += size)
        for (int row = 0; row < num_rows; row += AMX_ROW_BLOCK) {
            const int block = std::min(num_rows - row, AMX_ROW_BLOCK), upper = std::min(block, AMX_ROWS);
            const Tiles::Shape weights{AMX_ROWS, AMX_ROW_BYTES};
            const Tiles::Shape a{upper, AMX_ROW_BYTES}, b{block > upper ? block - upper : 1, AMX_ROW_BYTES};
            const Tiles tiles({a, a, b, b, a, b, weights, weights});
            for (int panel = group; panel < std::min(group + size, last); ++panel) {
                const Rows rows{x.row(row), x.stride};
                if (block > upper) multiply_panel_amx<true>(this->panel(panel), panel_words_, rows, sums);
                else multiply_panel_amx<false>(this->panel(panel), panel_words_, rows, sums);
                const int channel = panel * PANEL, count = std::min(PANEL, num_channels - channel);
                for (int r = 0; r < block; ++r) to.put(row + r, channel, count, sums + r * PANEL);
            }
        }
#else
    (void)first, (void)last, (void)x, (void)num_rows, (void)to;
#endif
}

}  // namespace dp
