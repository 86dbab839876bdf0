// A decoder of the Llama family: its packed weights and one whole forward pass as a single parallel job.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "attention.h"
#include "batch.h"
#include "matrix.h"

namespace dp {

// Mirrors draftproof.models.native.library.ShapeStruct.
struct Shape {
    int32_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
    int32_t tie_embeddings, qkv_bias, o_bias, mlp_bias, num_threads;
    float rms_norm_eps;
};

constexpr int MAX_HEAD_DIM = 512;
constexpr int OWN_NORM_ROWS = 16;  // up to so many rows every thread norms for itself, which saves a barrier

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

template <class T> struct Layer {
    float *input_norm = nullptr, *post_norm = nullptr;
    Matrix<T> qkv, o, gate_up, down;
};

template <class T> struct Weights {
    Shape shape;
    int q_size, kv_size, padded_hidden;
    std::unique_ptr<Arena> arena;
    std::vector<Layer<T>> layers;
    float* final_norm;
    Matrix<T> head;
    Matrix<T> embedding;  // the same memory as `head` when they are tied

    explicit Weights(const Shape& s) : shape(s) {
        q_size = s.num_heads * s.head_dim, kv_size = s.num_kv_heads * s.head_dim;
        padded_hidden = int(round_up(s.hidden_size, 64));
        const size_t norm = padded_hidden * sizeof(float) + LINE_BYTES;
        const size_t layer = Matrix<T>::bytes(s.hidden_size, q_size + 2 * kv_size) +
                             Matrix<T>::bytes(q_size, s.hidden_size) +
                             Matrix<T>::bytes(s.hidden_size, gate_up_channels()) +
                             Matrix<T>::bytes(s.intermediate_size, s.hidden_size) + 2 * norm;
        const size_t head_bytes = Matrix<T>::bytes(s.hidden_size, s.vocab_size);
        arena = std::make_unique<Arena>(s.num_layers * layer + head_bytes * (s.tie_embeddings ? 1 : 2) + norm);
        layers.resize(s.num_layers);
        for (Layer<T>& l : layers) {
            l.input_norm = take_norm(), l.post_norm = take_norm();
            l.qkv.allocate_in(*arena, s.hidden_size, q_size + 2 * kv_size, s.qkv_bias);
            l.o.allocate_in(*arena, q_size, s.hidden_size, s.o_bias);
            l.gate_up.allocate_in(*arena, s.hidden_size, gate_up_channels(), s.mlp_bias);
            l.down.allocate_in(*arena, s.intermediate_size, s.hidden_size, s.mlp_bias);
        }
        final_norm = take_norm();
        head.allocate_in(*arena, s.hidden_size, s.vocab_size, false);
        embedding = head;
        if (!s.tie_embeddings) embedding.allocate_in(*arena, s.hidden_size, s.vocab_size, false);
    }

    int gate_up_channels() const { return int(round_up(shape.intermediate_size, WIDE)) * 2; }

  private:
    float* take_norm() {
        float* norm = static_cast<float*>(arena->take(padded_hidden * sizeof(float)));
        std::memset(norm, 0, padded_hidden * sizeof(float));
        return norm;
    }
};

// Activations of one pass. Strides are padded so that kernels may write whole panels, and not a power of two.
struct Workspace {
    Rows hidden, normed, qkv, attended, gated;
    float* own;  // per thread: normed rows or queries
    size_t own_stride;

    template <class T> void prepare(const Weights<T>& w, int num_rows, int num_logit_rows) {
        const Shape& s = w.shape;
        hidden = rows(hidden_, num_rows, s.hidden_size);
        normed = rows(normed_, num_rows > num_logit_rows ? num_rows : num_logit_rows, s.hidden_size);
        qkv = rows(qkv_, num_rows, w.q_size + 2 * w.kv_size);
        attended = rows(attended_, num_rows, w.q_size);
        gated = rows(gated_, num_rows, s.intermediate_size);
        const int group = s.num_heads / s.num_kv_heads;
        const size_t queries = Queries::floats(group > QUERY_TILE ? group : QUERY_TILE, s.head_dim);
        const size_t norms = OWN_NORM_ROWS * stride_of(s.hidden_size);
        own_stride = round_up(queries > norms ? queries : norms, 16);
        own = own_.at_least(own_stride * s.num_threads);
    }

  private:
    static size_t stride_of(int size) { return round_up(size, 64) + 16; }
    static Rows rows(Buffer& buffer, int num_rows, int size) {
        return {buffer.at_least(stride_of(size) * num_rows), stride_of(size)};
    }
    Buffer hidden_, normed_, qkv_, attended_, gated_, own_;
};

// One pass: what every thread of the team needs.
template <class T> class Forward {
  public:
    Forward(const Weights<T>& weights, const Plan& plan, const Batch& batch, const Workspace& space,
            const Cache<T>& cache, float* logits)
        : w_(weights), s_(weights.shape), plan_(plan), batch_(batch), space_(space), cache_(cache), logits_(logits),
          num_rows_(int(batch.num_rows)) {}

    void operator()(Team& team, int thread) {
        float* own = space_.own + thread * space_.own_stride;
        team.share(num_rows_, [&](int first, int last) {
            for (int row = first; row < last; ++row) embed(row);
        });
        team.barrier();
        for (int layer = 0; layer < s_.num_layers; ++layer) {
            const Layer<T>& l = w_.layers[layer];
            multiply(team, l.qkv, norm(team, l.input_norm, own), num_rows_, StoreTo<T>{l.qkv, space_.qkv});
            team.barrier();
            team.share(num_rows_ * s_.num_kv_heads, [&](int first, int last) {
                for (int index = first; index < last; ++index) write_cache(layer, index);
            });
            team.barrier();
            team.share(int(plan_.items.size()), [&](int first, int last) {
                for (int item = first; item < last; ++item) attend_item(layer, plan_.items[item], own);
            });
            team.barrier();
            multiply(team, l.o, space_.attended, num_rows_, AddTo<T>{l.o, space_.hidden});
            team.barrier();
            multiply(team, l.gate_up, norm(team, l.post_norm, own), num_rows_, GateTo<T>{l.gate_up, space_.gated});
            team.barrier();
            multiply(team, l.down, space_.gated, num_rows_, AddTo<T>{l.down, space_.hidden});
            team.barrier();
        }
        compute_logits(team);
    }

  private:
    void embed(int row) {
        const int token = int(batch_.token_ids[row]);
        float* to = space_.hidden.row(row);
        for (int k = 0; k < s_.hidden_size; ++k) to[k] = w_.embedding.weight(token, k);
        for (size_t k = s_.hidden_size; k < space_.hidden.stride; ++k) to[k] = 0.0f;
    }

    void norm_row(int row, const float* weight, float* to) {
        rms_norm(space_.hidden.row(row), weight, to, s_.hidden_size, s_.rms_norm_eps);
    }

    Rows norm(Team& team, const float* weight, float* own) {
        if (num_rows_ <= OWN_NORM_ROWS) {
            const Rows to{own, space_.normed.stride};
            for (int row = 0; row < num_rows_; ++row) norm_row(row, weight, to.row(row));
            return to;
        }
        team.share(num_rows_, [&](int first, int last) {
            for (int row = first; row < last; ++row) norm_row(row, weight, space_.normed.row(row));
        });
        team.barrier();
        return space_.normed;
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

    void compute_logits(Team& team) {
        const int num_logits = int(batch_.num_logit_rows);
        team.share(num_logits, [&](int first, int last) {
            for (int index = first; index < last; ++index)
                norm_row(int(batch_.logit_rows[index]), w_.final_norm, space_.normed.row(index));
        });
        team.barrier();
        const Rows out{logits_, size_t(s_.vocab_size)};
        multiply(team, w_.head, space_.normed, num_logits, StoreTo<T>{w_.head, out});
    }

    const Weights<T>& w_;
    const Shape& s_;
    const Plan& plan_;
    const Batch& batch_;
    const Workspace& space_;
    const Cache<T>& cache_;
    float* logits_;
    const int num_rows_;
};

}  // namespace dp
