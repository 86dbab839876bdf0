// Linear layers as model.h knows them: weights in some storage, whichever it is, times rows of activations.
//
// A storage promises that the bits of an output depend on its row of inputs alone: not on other rows, threads or the
// machine's vectors. Each defines its order of additions (matrix.h, quantized.h) and says it again, slowly, in
// reference.h. A new kind of storage is one more class here, and nothing in model.h.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "amx.h"
#include "memory.h"
#include "simd.h"
#include "threads.h"

namespace dp {

typedef std::vector<float> Floats;

// Rows of activations or of results: `stride` floats from one to the next.
struct Rows {
    float* data;
    size_t stride;
    float* row(int index) const { return data + size_t(index) * stride; }
};

constexpr int BLOCK_INPUTS = 32, SUPER_INPUTS = 256;

// Neighbouring activations as integers, one scale for all: value k is scale * values[k] (int8.h).
struct alignas(16) Int8Block {
    int8_t values[BLOCK_INPUTS];
    float scale, scaled_sum;  // scale * float(sum of all values)
    int16_t half_sums[2];     // of each sixteen values
};

// The same for the types whose scales come in two levels.
struct alignas(LINE_BYTES) Int8SuperBlock {
    static constexpr int SUBS = SUPER_INPUTS / BLOCK_INPUTS;
    int8_t values[SUPER_INPUTS];
    float scale;
    int16_t half_sums[2 * SUBS];
    int8_t sums_low[SUBS], sums_high[SUBS];  // of each 32 values: high * SUM_STEP + low, low from 0 on
};
constexpr int SUM_STEP = 64;

constexpr int ROW_GROUP = 12;      // rows that are multiplied with a tile of weights at a time, in vectors
constexpr int MAX_ROW_GROUP = 16;  // the same with AMX

// Rows whose blocks lie together, at most.
inline int row_group() { return has_amx() ? MAX_ROW_GROUP : ROW_GROUP; }

// Rows of whole blocks, in groups of nearly equal size: in a group, block by block, the block of each of its rows.
template <class B> struct Int8Rows {
    B* data;
    int num_blocks, num_rows, group;  // blocks of a row, all rows, rows of a group

    Int8Rows(B* data, int num_blocks, int num_rows) : data(data), num_blocks(num_blocks), num_rows(num_rows) {
        const int num_groups = (num_rows + row_group() - 1) / row_group();
        group = num_groups ? (num_rows + num_groups - 1) / num_groups : 0;
    }
    static size_t blocks_for(int num_blocks, int num_rows) {  // products may read beyond the last row
        return size_t(num_blocks) * num_rows + MAX_ROW_GROUP;
    }
    int rows_in_group(int row) const { return std::min(group, num_rows - row / group * group); }
    // First block of a row; the next one is rows_in_group(row) further.
    B* row(int row) const { return data + size_t(row / group) * group * num_blocks + row % group; }
};

// What a product reads of its rows: floats, or integers with a scale for so many.
enum class Reads { floats, blocks, super_blocks };

// Rows as products read them; which forms are filled is told by the storages.
struct Input {
    Rows floats;
    Int8Rows<Int8Block> blocks;
    Int8Rows<Int8SuperBlock> super_blocks;
};

// Where results go: channel 0 of row 0, and what is added to them first.
struct Target {
    Rows out;
    const float* bias;  // by channel, or null
    bool is_added;      // to what is there (after the bias), or stored

    // `count` neighbouring channels of one row.
    void put(int row, int channel, int count, const float* sums) const {
        float* to = out.row(row) + channel;
        const float* b = bias ? bias + channel : nullptr;
        int index = 0;
        for (; index + WIDE <= count; index += WIDE) {
            vecw value = load<vecw>(sums + index);
            if (b) value = value + load<vecw>(b + index);
            store(to + index, is_added ? load<vecw>(to + index) + value : value);
        }
        for (; index < count; ++index) {
            const float value = b ? sums[index] + b[index] : sums[index];
            to[index] = is_added ? to[index] + value : value;
        }
    }
};

class Storage {
  public:
    const int num_inputs, num_channels;

    Storage(int inputs, int channels) : num_inputs(inputs), num_channels(channels) {}
    virtual ~Storage() = default;

    virtual Reads reads() const = 0;         // which part of the Input
    virtual void prepare(float*) const {}    // makes a row of floats into what `multiply` reads of them, in place
    virtual int num_panels() const = 0;      // of channels: the parts that threads share
    virtual void multiply(int first_panel, int last_panel, const Input& x, int num_rows, const Target& to) const = 0;
    virtual void read_channel(int channel, float* weights) const = 0;  // [num_inputs]
    virtual Floats reference(const Floats& x) const = 0;               // all channels of one row; in reference.h
};

// One or more storages that read the same rows and write one after the other's channels; a bias may follow.
struct Linear {
    struct Piece {
        std::shared_ptr<const Storage> storage;
        int offset;  // of its first channel
    };
    std::vector<Piece> pieces;
    Floats bias;  // by channel, or empty

    void add(std::shared_ptr<const Storage> storage, int offset) {
        const auto after = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.offset > offset; });
        pieces.insert(after, {std::move(storage), offset});
    }

    int num_inputs() const { return pieces.front().storage->num_inputs; }
    void prepare(float* row) const {  // once per row: what reads floats is of one type
        const auto reads_floats = [](const Piece& piece) { return piece.storage->reads() == Reads::floats; };
        const auto piece = std::find_if(pieces.begin(), pieces.end(), reads_floats);
        if (piece != pieces.end()) piece->storage->prepare(row);
    }
    bool reads(Reads form) const {
        for (const Piece& piece : pieces)
            if (piece.storage->reads() == form) return true;
        return false;
    }
};

// A product: out (+)= linear(x).
struct Product {
    const Linear* linear;
    Input x;
    int num_rows;
    Rows out;
    bool is_added;
};

// Threads share the panels of all pieces of all products; a barrier must follow.
inline void multiply(Team& team, const Product* products, int num_products) {
    int total = 0;
    for (int index = 0; index < num_products; ++index)
        for (const Linear::Piece& piece : products[index].linear->pieces) total += piece.storage->num_panels();
    team.share(total, [&](int first, int last) {
        for (int index = 0; index < num_products && last > 0; ++index) {
            const Product& p = products[index];
            const float* bias = p.linear->bias.empty() ? nullptr : p.linear->bias.data();
            for (const Linear::Piece& piece : p.linear->pieces) {
                const int panels = piece.storage->num_panels();
                const int begin = first < 0 ? 0 : first, end = last < panels ? last : panels;
                if (begin < end)
                    piece.storage->multiply(begin, end, p.x, p.num_rows,
                                            {{p.out.data + piece.offset, p.out.stride},
                                             bias ? bias + piece.offset : nullptr, p.is_added});
                first -= panels, last -= panels;
            }
        }
    });
}

inline void multiply(Team& team, const Linear& linear, const Input& x, int num_rows, const Rows& out, bool is_added) {
    const Product product{&linear, x, num_rows, out, is_added};
    multiply(team, &product, 1);
}

}  // namespace dp
