// One pass as the caller describes it, checked, and cut into pieces of attention work. Knows no weights.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention.h"

namespace dp {

// Mirrors draftproof.models.native.library.BatchStruct. Counts as int64, arrays owned by the caller.
struct Batch {
    const int64_t* token_ids;      // [num_rows]
    const int64_t* positions;      // [num_rows] rotary positions
    const int64_t* logit_rows;     // [num_logit_rows]
    const int64_t* context_lens;   // [num_segments]
    const int64_t* first_rows;     // [num_segments]
    const int64_t* row_counts;     // [num_segments]
    const int64_t* block_offsets;  // [num_segments + 1] into block_ids
    const int64_t* block_ids;
    const int64_t* parent_rows;    // [num_rows] within the segment; null when all segments are chains
    const uint8_t* is_tree;        // [num_segments]; null when all segments are chains
    const float* const* cos;       // [num_ropes] rotary tables, [num_positions][rotary_dim / 2] each
    const float* const* sin;
    int64_t num_rows, num_logit_rows, num_segments, num_positions;
};

struct Row {
    int segment, num_visible;  // visible keys, its own included
    size_t path;               // where its ancestors below the context start in Plan::paths (trees only)

    // First key that it sees in a layer with that window.
    int start(int window) const { return num_visible > window ? num_visible - window : 0; }
};

struct Segment {
    const int64_t* blocks;
    int context_len, first_row, num_rows;
    bool is_tree;
};

// Rows [first_row, last_row) of one segment, query heads [first_head, last_head) of one cache head.
struct Item {
    int segment, first_row, last_row, kv_head, first_head, last_head;
};

struct Limits {
    int64_t vocab_size, num_blocks;
    int num_heads, num_kv_heads, num_threads;
};

class Plan {
  public:
    std::vector<Segment> segments;
    std::vector<Row> rows;
    std::vector<int> paths;  // per row of a tree: rows of the segment from the root down to itself
    std::vector<Item> items;

    // Throws std::invalid_argument where the batch contradicts itself or points outside the cache.
    void make(const Batch& batch, const Limits& limits) {
        segments.clear(), rows.clear(), paths.clear(), items.clear();
        check_range("token id", batch.token_ids, batch.num_rows, limits.vocab_size);
        check_range("position", batch.positions, batch.num_rows, batch.num_positions);
        check_range("logit row", batch.logit_rows, batch.num_logit_rows, batch.num_rows);
        for (int64_t segment = 0; segment < batch.num_segments; ++segment) add_segment(batch, segment, limits);
        if (int64_t(rows.size()) != batch.num_rows) fail("segments do not cover the rows", rows.size(), batch.num_rows);
        cut_into_items(limits);
    }

    // Slot (position in the sequence's blocks) of the key-th key that a row sees.
    int slot(const Row& row, const Segment& segment, int key) const {
        if (!segment.is_tree || key < segment.context_len) return key;
        return segment.context_len + paths[row.path + key - segment.context_len];
    }

  private:
    [[noreturn]] static void fail(const char* what, int64_t found, int64_t limit) {
        throw std::invalid_argument(std::string(what) + ": " + std::to_string(found) + ", limit " +
                                    std::to_string(limit));
    }

    static void check_range(const char* what, const int64_t* values, int64_t count, int64_t limit) {
        for (int64_t index = 0; index < count; ++index)
            if (values[index] < 0 || values[index] >= limit) fail(what, values[index], limit);
    }

    void add_segment(const Batch& batch, int64_t index, const Limits& limits) {
        const int64_t num_rows = batch.row_counts[index], context = batch.context_lens[index];
        const int64_t num_blocks = batch.block_offsets[index + 1] - batch.block_offsets[index];
        const int64_t* blocks = batch.block_ids + batch.block_offsets[index];
        if (batch.first_rows[index] != int64_t(rows.size())) fail("first row", batch.first_rows[index], rows.size());
        if (num_rows < 1 || num_rows > batch.num_rows) fail("rows of a segment", num_rows, batch.num_rows);
        if (context < 0 || context > INT32_MAX / 2) fail("context length", context, INT32_MAX / 2);
        if (context + num_rows > num_blocks * BLOCK) fail("slots needed", context + num_rows, num_blocks * BLOCK);
        check_range("block id", blocks, num_blocks, limits.num_blocks);
        const bool is_tree = batch.is_tree && batch.is_tree[index];
        segments.push_back({blocks, int(context), int(rows.size()), int(num_rows), is_tree});
        for (int64_t row = 0; row < num_rows; ++row) {
            if (is_tree) {
                add_tree_row(batch.parent_rows + batch.first_rows[index], int(row), int(index), int(context));
            } else {
                rows.push_back({int(index), int(context + row + 1), 0});
            }
        }
    }

    void add_tree_row(const int64_t* parents, int row, int segment, int context) {
        if (row == 0 ? parents[0] != 0 : parents[row] < 0 || parents[row] >= row) fail("parent row", parents[row], row);
        const size_t path = paths.size();
        int depth = 0;
        if (row > 0) {
            const Row parent = rows[size_t(segments.back().first_row) + parents[row]];
            depth = parent.num_visible - context;
            for (int step = 0; step < depth; ++step) paths.push_back(paths[parent.path + step]);
        }
        paths.push_back(row);
        rows.push_back({segment, context + depth + 1, path});
    }

    // Items of QUERY_TILE queries. Where they are few, those that would leave threads idle are cut further; the others
    // are not, for every cut reads the keys once more.
    void cut_into_items(const Limits& limits) {
        const int group = limits.num_heads / limits.num_kv_heads;
        const int tile = group < QUERY_TILE ? QUERY_TILE / group : 1;
        for (size_t index = 0; index < segments.size(); ++index)
            for (int row = 0; row < segments[index].num_rows; row += tile)
                for (int kv_head = 0; kv_head < limits.num_kv_heads; ++kv_head) {
                    const int base = segments[index].first_row, end = base + segments[index].num_rows;
                    const int last_row = base + row + tile < end ? base + row + tile : end;
                    items.push_back({int(index), base + row, last_row, kv_head, kv_head * group, (kv_head + 1) * group});
                }
        const size_t left = items.size() % limits.num_threads;
        if (left == 0 || items.size() >= size_t(4 * limits.num_threads)) return;
        const std::vector<Item> last(items.end() - left, items.end());
        items.resize(items.size() - left);
        for (const Item& item : last) cut(item, int((limits.num_threads + left - 1) / left));
    }

    // Adds an item in that many parts, as far as it has rows or heads for them.
    void cut(const Item& item, int parts) {
        const int num_rows = item.last_row - item.first_row, num_heads = item.last_head - item.first_head;
        const bool by_row = num_rows >= parts;
        const int count = by_row ? num_rows : num_heads;
        if (parts > count) parts = count;
        for (int part = 0; part < parts; ++part) {
            const int begin = part * count / parts, end = (part + 1) * count / parts;
            Item piece = item;
            if (by_row) piece.first_row = item.first_row + begin, piece.last_row = item.first_row + end;
            if (!by_row) piece.first_head = item.first_head + begin, piece.last_head = item.first_head + end;
            items.push_back(piece);
        }
    }
};

}  // namespace dp
