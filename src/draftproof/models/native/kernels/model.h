// A decoder of the Llama family: its packed weights and one whole forward pass as a single parallel job.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "attention.h"
#include "batch.h"
#include "int8.h"
#include "linear.h"

namespace dp {

// Mirrors draftproof.models.native.library.ShapeStruct.
struct Shape {
    int32_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
    int32_t tie_embeddings, qkv_bias, o_bias, mlp_bias, num_threads;
    float rms_norm_eps;
};

constexpr int MAX_HEAD_DIM = 512;
constexpr size_t OWN_FLOATS = 24 << 10;  // up to so many inputs every thread makes for itself, which saves a barrier

// out = x / rms(x) * weight. The sum of squares runs in 4 x 8 lanes, element i in lane i mod 32; x is padded with
// zeros to a multiple of 32.
inline void rms_norm(const float* x, const float* weight, float* out, int size, float eps) {
    vec8 sums[4] = {};
    for (int base = 0; base < size; base += 4 * LANES)
        for (int part = 0; part < 4; ++part) {
            const vec8 v = load<vec8>(x + base + part * LANES);
            sums[part] = fma(v, v, sums[part]);
        }
    const float mean = sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3])) / float(size);
    const vec8 scale = splat<vec8>(1.0f / __builtin_sqrtf(mean + eps));
    for (int index = 0; index < size; index += LANES)
        store(out + index, load<vec8>(x + index) * scale * load<vec8>(weight + index));
}

struct Layer {
    Floats input_norm, post_norm;
    Linear qkv, o, gate_up, down;  // gate_up: the gate's channels, then those of up
};

struct Weights {
    Shape shape;
    int q_size, kv_size;
    Arena arena;
    std::vector<Layer> layers;
    Floats final_norm;
    Linear head;
    std::shared_ptr<const Storage> embedding;  // that of `head` when they are tied

    explicit Weights(const Shape& s)
        : shape(s), q_size(s.num_heads * s.head_dim), kv_size(s.num_kv_heads * s.head_dim), layers(s.num_layers) {}
};

// Activations of one pass. Strides are padded so that kernels may write whole vectors, and not a power of two.
struct Workspace {
    Rows hidden, qkv, attended, gate_up;
    Input input;  // of the next product, where threads share the making of it

    // What each thread has to itself.
    struct Own {
        Input input;
        float* queries;
    };

    void prepare(const Weights& w, int num_rows, int num_logit_rows) {
        const Shape& s = w.shape;
        hidden = rows(hidden_, num_rows, s.hidden_size);
        qkv = rows(qkv_, num_rows, w.q_size + 2 * w.kv_size);
        attended = rows(attended_, num_rows, w.q_size);
        gate_up = rows(gate_up_, num_rows, 2 * s.intermediate_size);
        const int widest = std::max({s.hidden_size, w.q_size, s.intermediate_size});
        const int most = std::max(num_rows, num_logit_rows);
        input = {rows(input_, most, widest), {blocks_.at_least(most * blocks_of(widest)), blocks_of(widest)}};
        const int group = s.num_heads / s.num_kv_heads;
        const size_t queries = Queries::floats(std::max(group, QUERY_TILE), s.head_dim);
        own_floats_count_ = round_up(std::max(OWN_FLOATS, stride_of(widest)), 16);
        own_stride_ = round_up(own_floats_count_ + queries, 16);
        own_blocks_stride_ = own_floats_count_ / BLOCK_INPUTS + 1;
        own_floats_ = own_floats_buffer_.at_least(own_stride_ * s.num_threads);
        own_blocks_ = own_blocks_buffer_.at_least(own_blocks_stride_ * s.num_threads);
    }

    // Memory of one thread for rows of that many inputs.
    Own own(int thread, int num_inputs) const {
        float* floats = own_floats_ + thread * own_stride_;
        Int8Block* blocks = own_blocks_ + thread * own_blocks_stride_;
        return {{{floats, stride_of(num_inputs)}, {blocks, blocks_of(num_inputs)}}, floats + own_floats_count_};
    }

    static size_t stride_of(int size) { return round_up(size, 64) + 16; }
    static size_t blocks_of(int size) { return (size + BLOCK_INPUTS - 1) / BLOCK_INPUTS; }

  private:
    static Rows rows(Buffer<float>& buffer, int num_rows, int size) {
        return {buffer.at_least(stride_of(size) * num_rows), stride_of(size)};
    }
    Buffer<float> hidden_, qkv_, attended_, gate_up_, input_, own_floats_buffer_;
    Buffer<Int8Block> blocks_, own_blocks_buffer_;
    size_t own_floats_count_, own_stride_, own_blocks_stride_;
    float* own_floats_;
    Int8Block* own_blocks_;
};

// One pass: what every thread of the team needs.
template <class T> class Forward {
  public:
    Forward(const Weights& weights, const Plan& plan, const Batch& batch, const Workspace& space,
            const Cache<T>& cache, float* logits)
        : w_(weights), s_(weights.shape), plan_(plan), batch_(batch), space_(space), cache_(cache), logits_(logits),
          num_rows_(int(batch.num_rows)) {}

    void operator()(Team& team, int thread) {
        team.share(num_rows_, [&](int first, int last) {
            for (int row = first; row < last; ++row) embed(row);
        });
        team.barrier();
        for (int layer = 0; layer < s_.num_layers; ++layer) {
            const Layer& l = w_.layers[layer];
            const auto norm_with = [&](const Floats& weight) {
                return [&](int row, float* to) { norm(space_.hidden.row(row), weight, to); };
            };
            apply(team, thread, l.qkv, num_rows_, space_.qkv, false, norm_with(l.input_norm));
            team.share(num_rows_ * s_.num_kv_heads, [&](int first, int last) {
                for (int index = first; index < last; ++index) write_cache(layer, index);
            });
            team.barrier();
            float* queries = space_.own(thread, 0).queries;
            team.share(int(plan_.items.size()), [&](int first, int last) {
                for (int item = first; item < last; ++item) attend_item(layer, plan_.items[item], queries);
            });
            team.barrier();
            apply(team, thread, l.o, num_rows_, space_.hidden, true, [&](int row, float* to) {
                std::memcpy(to, space_.attended.row(row), w_.q_size * sizeof(float));
            });
            apply(team, thread, l.gate_up, num_rows_, space_.gate_up, false, norm_with(l.post_norm));
            apply(team, thread, l.down, num_rows_, space_.hidden, true, [&](int row, float* to) { gate(row, to); });
        }
        apply(team, thread, w_.head, int(batch_.num_logit_rows), {logits_, size_t(s_.vocab_size)}, false,
              [&](int index, float* to) { norm(space_.hidden.row(int(batch_.logit_rows[index])), w_.final_norm, to); });
    }

  private:
    void embed(int row) {
        float* to = space_.hidden.row(row);
        w_.embedding->read_channel(int(batch_.token_ids[row]), to);
        for (size_t k = s_.hidden_size; k < space_.hidden.stride; ++k) to[k] = 0.0f;
    }

    void norm(const float* x, const Floats& weight, float* to) const {
        rms_norm(x, weight.data(), to, s_.hidden_size, s_.rms_norm_eps);
    }

    // silu(gate) * up
    void gate(int row, float* to) const {
        const float *gate = space_.gate_up.row(row), *up = gate + s_.intermediate_size;
        const vecw one = splat<vecw>(1.0f);
        for (int k = 0; k < s_.intermediate_size; k += WIDE) {
            const vecw value = load<vecw>(gate + k);
            store(to + k, value / (one + exp_of(-value)) * load<vecw>(up + k));
        }
    }

    // out (+)= linear(rows), where make(row, to) writes one of its input rows; then all threads meet. A few inputs
    // each thread makes for itself.
    template <class Make>
    void apply(Team& team, int thread, const Linear& linear, int num_rows, const Rows& out, bool is_added, Make make) {
        const int num_inputs = linear.num_inputs();
        const bool is_own = num_rows * space_.stride_of(num_inputs) <= OWN_FLOATS || num_rows == 1;
        const Input own = space_.own(thread, num_inputs).input, input = is_own ? own : space_.input;
        const bool keeps_floats = linear.reads_floats(), makes_blocks = linear.reads_blocks();
        const auto fill = [&](int first, int last) {
            for (int row = first; row < last; ++row) {
                float* floats = keeps_floats ? input.floats.row(row) : own.floats.data;
                make(row, floats);
                if (makes_blocks) quantize_row(floats, num_inputs, input.blocks.row(row));
            }
        };
        if (is_own) {
            fill(0, num_rows);
        } else {
            team.share(num_rows, fill);
            team.barrier();
        }
        multiply(team, linear, input, num_rows, out, is_added);
        team.barrier();
    }

    const float* cos_of(int row) const { return batch_.cos + batch_.positions[row] * (s_.head_dim / 2); }
    const float* sin_of(int row) const { return batch_.sin + batch_.positions[row] * (s_.head_dim / 2); }

    void write_cache(int layer, int index) {
        const int row = index / s_.num_kv_heads, kv_head = index % s_.num_kv_heads;
        const Segment& segment = plan_.segments[plan_.rows[row].segment];
        const int slot = segment.context_len + row - segment.first_row;
        const float* from = space_.qkv.row(row) + w_.q_size + kv_head * s_.head_dim;
        alignas(LINE_BYTES) float rotated[MAX_HEAD_DIM];
        rotate(from, rotated, cos_of(row), sin_of(row), s_.head_dim, 1.0f);
        T* key = cache_.key(layer, segment.blocks[slot / BLOCK], kv_head, slot % BLOCK);
        T* value = cache_.value(layer, segment.blocks[slot / BLOCK], kv_head, slot % BLOCK);
        for (int d = 0; d < s_.head_dim; d += LANES) {
            store8(key + d, load<vec8>(rotated + d));
            store8(value + d, load<vec8>(from + w_.kv_size + d));
        }
    }

    // The keys from `first` on that a row sees, a chunk at most.
    void gather(int layer, const Row& row, const Segment& segment, int kv_head, int first, Chunk<T>& chunk) const {
        const int left = row.num_visible - first, hd = s_.head_dim;
        chunk.first = first, chunk.count = left < CHUNK ? left : CHUNK;
        for (int key = 0; key < chunk.count;) {
            const int slot = plan_.slot(row, segment, first + key);
            const int in_block = BLOCK - slot % BLOCK, in_chunk = chunk.count - key;
            const int in_order = plan_.num_in_order(segment, first + key);
            const int run = std::min({in_block, in_chunk, in_order});
            const T* keys = cache_.key(layer, segment.blocks[slot / BLOCK], kv_head, slot % BLOCK);
            const T* values = cache_.value(layer, segment.blocks[slot / BLOCK], kv_head, slot % BLOCK);
            for (int step = 0; step < run; ++step, ++key, keys += hd, values += hd) {
                chunk.keys[key] = keys, chunk.values[key] = values;
            }
        }
        for (int key = chunk.count; key % LANES; ++key) chunk.keys[key] = chunk.keys[chunk.count - 1];
    }

    // The queries attend to what they see of keys first .. end of `row`; the next chunk is on its way meanwhile.
    void attend_range(int layer, const Item& item, const Row& row, int first, int end, const Queries& queries) const {
        if (first >= end) return;
        const Segment& segment = plan_.segments[item.segment];
        Chunk<T> chunks[2];
        gather(layer, row, segment, item.kv_head, first, chunks[0]);
        for (int key = first, current = 0; key < end; key += CHUNK, current = 1 - current) {
            const bool is_last = key + CHUNK >= end;
            if (!is_last) gather(layer, row, segment, item.kv_head, key + CHUNK, chunks[1 - current]);
            attend(chunks[current], queries, is_last ? nullptr : &chunks[1 - current]);
        }
    }

    void attend_item(int layer, const Item& item, float* own) const {
        const Segment& segment = plan_.segments[item.segment];
        const int heads = item.last_head - item.first_head;
        Queries queries(own, (item.last_row - item.first_row) * heads, s_.head_dim);
        queries.clear();
        for (int query = 0; query < queries.num; ++query)
            set_query(item.first_row + query / heads, item.first_head + query % heads, queries, query);
        if (!segment.is_tree) {
            const Row& last = plan_.rows[item.last_row - 1];
            attend_range(layer, item, last, 0, last.num_visible, queries);
        } else {  // whole chunks of the context together, those with other branches in them each row by itself
            const int shared = segment.context_len / CHUNK * CHUNK;
            attend_range(layer, item, plan_.rows[item.first_row], 0, shared, queries);
            for (int row = item.first_row; row < item.last_row; ++row)
                attend_range(layer, item, plan_.rows[row], shared, plan_.rows[row].num_visible,
                             queries.part((row - item.first_row) * heads, heads));
        }
        for (int query = 0; query < queries.num; ++query)
            put_output(item.first_row + query / heads, item.first_head + query % heads, queries, query);
    }

    void set_query(int row, int head, const Queries& queries, int query) const {
        const int hd = s_.head_dim;
        alignas(LINE_BYTES) float rotated[MAX_HEAD_DIM];
        rotate(space_.qkv.row(row) + head * hd, rotated, cos_of(row), sin_of(row), hd,
               1.0f / __builtin_sqrtf(float(hd)));
        for (int d = 0; d < hd; d += 2 * LANES) {
            vec8 first, second;
            to_halves<T>(rotated + d, first, second);
            store(queries.q + query * hd + d, first);
            store(queries.q + query * hd + d + LANES, second);
        }
        queries.visible[query] = plan_.rows[row].num_visible;
    }

    void put_output(int row, int head, const Queries& queries, int query) const {
        const vec8 scale = splat<vec8>(1.0f / queries.sum[query]);
        for (int d = 0; d < s_.head_dim; d += 2 * LANES) {
            const float* out = queries.out + query * s_.head_dim + d;
            from_halves<T>(load<vec8>(out) * scale, load<vec8>(out + LANES) * scale,
                           space_.attended.row(row) + head * s_.head_dim + d);
        }
    }

    const Weights& w_;
    const Shape& s_;
    const Plan& plan_;
    const Batch& batch_;
    const Workspace& space_;
    const Cache<T>& cache_;
    float* logits_;
    const int num_rows_;
};

}  // namespace dp
