// A decoder as `ModelConfig` describes it: its packed weights and one whole forward pass as a single parallel job.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "attention.h"
#include "batch.h"
#include "experts.h"
#include "int8.h"
#include "linear.h"

namespace dp {

// Mirrors draftproof.models.native.library.ShapeStruct.
struct Shape {
    int32_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
    int32_t tie_embeddings, qkv_bias, o_bias, mlp_bias, num_threads, activation;
    float rms_norm_eps, embedding_scale, score_scale;
};

enum Activation { SILU, GELU_TANH };

// Mirrors draftproof.models.native.library.LayerStruct.
struct LayerShape {
    int32_t rope, rotary_dim, window;                                 // no rope: rotary_dim 0
    int32_t num_experts, num_used, expert_size, is_normalised;        // no experts: 0
};

constexpr int MAX_HEAD_DIM = 512;
constexpr float GELU_CUBE = 0.044715f, GELU_SLOPE = 1.5957691216f;  // 2 sqrt(2 / pi)
constexpr size_t OWN_FLOATS = 2 << 10;  // up to so many inputs every thread makes for itself, which saves a barrier

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

// Norms that a model does not have are empty.
struct Layer {
    LayerShape shape;
    Floats input_norm, mlp_norm, attention_post_norm, mlp_post_norm, q_norm, k_norm;
    Linear qkv, o, gate_up, down;  // gate_up: the gate's channels, then those of up
    Linear router;
    std::vector<Linear> expert_gate_up, expert_down;
};

struct Weights {
    Shape shape;
    int q_size, kv_size;
    Arena arena;
    std::vector<Layer> layers;
    Floats final_norm;
    Linear head;
    std::shared_ptr<const Storage> embedding;  // that of `head` when they are tied

    Weights(const Shape& s, const LayerShape* layer_shapes)
        : shape(s), q_size(s.num_heads * s.head_dim), kv_size(s.num_kv_heads * s.head_dim), layers(s.num_layers) {
        for (int layer = 0; layer < s.num_layers; ++layer) {
            Layer& l = layers[layer];
            l.shape = layer_shapes[layer];
            l.expert_gate_up.resize(l.shape.num_experts), l.expert_down.resize(l.shape.num_experts);
        }
    }

    // The largest of that number over all layers.
    int most(int32_t LayerShape::*number) const {
        int32_t most = 0;
        for (const Layer& l : layers) most = std::max(most, l.shape.*number);
        return most;
    }
};

// Activations of one pass. Strides are padded so that kernels may write whole vectors, and not a power of two.
struct Workspace {
    Rows hidden, qkv, attended, gate_up;
    Rows branch;                          // what attention or MLP gave, before it is added
    Rows scores, visit_gate_up, visited;  // of experts: by row, by visit, by visit
    Routing routing;
    std::vector<std::vector<Product>> products;  // of one layer's experts, by thread

    // All memory that a pass takes: in its threads nothing can be said of a want of it.
    void prepare(const Weights& w, int num_rows, int num_logit_rows) {
        const Shape& s = w.shape;
        hidden = rows(hidden_, num_rows, s.hidden_size);
        qkv = rows(qkv_, num_rows, w.q_size + 2 * w.kv_size);
        attended = rows(attended_, num_rows, w.q_size);
        gate_up = rows(gate_up_, num_rows, 2 * s.intermediate_size);
        branch = rows(branch_, num_rows, s.hidden_size);
        const int expert_size = w.most(&LayerShape::expert_size);
        const size_t num_visits = size_t(num_rows) * w.most(&LayerShape::num_used);
        const int num_experts = w.most(&LayerShape::num_experts);
        routing.reserve(num_rows, num_experts, w.most(&LayerShape::num_used));
        products.resize(s.num_threads);
        for (std::vector<Product>& own : products) own.reserve(num_experts);
        scores = rows(scores_, num_rows, num_experts);
        visit_gate_up = rows(visit_gate_up_, num_visits, 2 * expert_size);
        visited = rows(visited_, num_visits, s.hidden_size);
        const int visit_inputs = std::max(s.hidden_size, expert_size);
        visit_floats_ = rows(visit_input_, num_visits, visit_inputs).data;
        visit_blocks_ = visit_blocks_buffer_.at_least(
            Int8Rows<Int8Block>::blocks_for(visit_inputs / BLOCK_INPUTS, int(num_visits)));
        visit_super_blocks_ = visit_super_blocks_buffer_.at_least(
            Int8Rows<Int8SuperBlock>::blocks_for(visit_inputs / SUPER_INPUTS, int(num_visits)));
        const int widest = std::max({s.hidden_size, w.q_size, s.intermediate_size, expert_size});
        const int most = std::max(num_rows, num_logit_rows);
        input_rows_ = rows(input_, most, widest).data;
        input_blocks_ = blocks_.at_least(Int8Rows<Int8Block>::blocks_for(widest / BLOCK_INPUTS, most));
        input_super_blocks_ = super_blocks_.at_least(Int8Rows<Int8SuperBlock>::blocks_for(widest / SUPER_INPUTS, most));
        const int group = s.num_heads / s.num_kv_heads;
        const size_t queries = Queries::floats(std::max(group, QUERY_TILE), s.head_dim) + 2 * CHUNK * s.head_dim;
        own_floats_count_ = round_up(std::max(OWN_FLOATS, stride_of(widest)), 16);
        own_stride_ = round_up(own_floats_count_ + queries, 16);
        own_blocks_stride_ = own_floats_count_ / BLOCK_INPUTS + MAX_ROW_GROUP;
        own_super_blocks_stride_ = own_floats_count_ / SUPER_INPUTS + MAX_ROW_GROUP;
        own_floats_ = own_floats_buffer_.at_least(own_stride_ * s.num_threads);
        own_blocks_ = own_blocks_buffer_.at_least(own_blocks_stride_ * s.num_threads);
        own_super_blocks_ = own_super_blocks_buffer_.at_least(own_super_blocks_stride_ * s.num_threads);
    }

    // Memory for the rows of one product: shared, or a thread's own.
    Input shared_input(int num_inputs, int num_rows) const {
        return {{input_rows_, stride_of(num_inputs)},
                {input_blocks_, num_inputs / BLOCK_INPUTS, num_rows},
                {input_super_blocks_, num_inputs / SUPER_INPUTS, num_rows}};
    }
    Input own_input(int thread, int num_inputs, int num_rows) const {
        return {{own_floats_ + thread * own_stride_, stride_of(num_inputs)},
                {own_blocks_ + thread * own_blocks_stride_, num_inputs / BLOCK_INPUTS, num_rows},
                {own_super_blocks_ + thread * own_super_blocks_stride_, num_inputs / SUPER_INPUTS, num_rows}};
    }
    float* own_queries(int thread) const { return own_floats_ + thread * own_stride_ + own_floats_count_; }

    // Memory for the inputs of one expert, whose visits begin at `first`.
    Input visit_input(int num_inputs, int first, int num_rows) const {
        const int num_blocks = num_inputs / BLOCK_INPUTS, num_super_blocks = num_inputs / SUPER_INPUTS;
        return {{visit_floats_ + first * stride_of(num_inputs), stride_of(num_inputs)},
                {visit_blocks_ + size_t(first) * num_blocks, num_blocks, num_rows},
                {visit_super_blocks_ + size_t(first) * num_super_blocks, num_super_blocks, num_rows}};
    }

    static size_t stride_of(int size) { return round_up(size, 64) + 16; }

  private:
    static Rows rows(Buffer<float>& buffer, size_t num_rows, int size) {
        return {buffer.at_least(stride_of(size) * num_rows), stride_of(size)};
    }
    Buffer<float> hidden_, qkv_, attended_, gate_up_, input_, own_floats_buffer_;
    Buffer<float> branch_, scores_, visit_gate_up_, visited_, visit_input_;
    Buffer<Int8Block> blocks_, own_blocks_buffer_, visit_blocks_buffer_;
    Buffer<Int8SuperBlock> super_blocks_, own_super_blocks_buffer_, visit_super_blocks_buffer_;
    size_t own_floats_count_, own_stride_, own_blocks_stride_, own_super_blocks_stride_;
    float *input_rows_, *own_floats_, *visit_floats_;
    Int8Block *input_blocks_, *own_blocks_, *visit_blocks_;
    Int8SuperBlock *input_super_blocks_, *own_super_blocks_, *visit_super_blocks_;
};

// One pass: what every thread of the team needs.
template <class T> class Forward {
  public:
    Forward(const Weights& weights, const Plan& plan, const Batch& batch, Workspace& space,
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
            apply(team, thread, l.qkv, num_rows_, space_.qkv, false, normed_by(l.input_norm));
            team.share(num_rows_ * s_.num_kv_heads, [&](int first, int last) {
                for (int index = first; index < last; ++index) write_cache(layer, index);
            });
            team.barrier();
            float* queries = space_.own_queries(thread);
            team.share(int(plan_.items.size()), [&](int first, int last) {
                for (int item = first; item < last; ++item) attend_item(layer, plan_.items[item], queries);
            });
            team.barrier();
            apply_to_stream(team, thread, l.o, l.attention_post_norm, [&](int row, float* to) {
                std::memcpy(to, space_.attended.row(row), w_.q_size * sizeof(float));
            });
            if (l.shape.num_experts) {
                mix_experts(team, thread, l);
                continue;
            }
            apply(team, thread, l.gate_up, num_rows_, space_.gate_up, false, normed_by(l.mlp_norm));
            apply_to_stream(team, thread, l.down, l.mlp_post_norm, [&](int row, float* to) {
                gate(space_.gate_up.row(row), s_.intermediate_size, to);
            });
        }
        apply(team, thread, w_.head, int(batch_.num_logit_rows), {logits_, size_t(s_.vocab_size)}, false,
              [&](int index, float* to) { norm(space_.hidden.row(int(batch_.logit_rows[index])), w_.final_norm, to); });
    }

  private:
    void embed(int row) {
        float* to = space_.hidden.row(row);
        w_.embedding->read_channel(int(batch_.token_ids[row]), to);
        if (s_.embedding_scale != 1.0f)
            for (int k = 0; k < s_.hidden_size; ++k) to[k] = to_float(from_float<T>(to[k] * s_.embedding_scale));
        for (size_t k = s_.hidden_size; k < space_.hidden.stride; ++k) to[k] = 0.0f;
    }

    void norm(const float* x, const Floats& weight, float* to) const {
        rms_norm(x, weight.data(), to, s_.hidden_size, s_.rms_norm_eps);
    }

    // Writes a row of the stream, normed.
    auto normed_by(const Floats& weight) const {
        return [this, &weight](int row, float* to) { norm(space_.hidden.row(row), weight, to); };
    }

    // activation(gate) * up, where `from` holds `size` channels of the gate and then those of up.
    void gate(const float* from, int size, float* to) const {
        const vecw one = splat<vecw>(1.0f);
        for (int k = 0; k < size; k += WIDE) {
            const vecw value = load<vecw>(from + k);
            vecw exponent = -value;
            if (s_.activation == GELU_TANH)
                exponent = fma(value * value * value, splat<vecw>(GELU_CUBE), value) * splat<vecw>(-GELU_SLOPE);
            store(to + k, value / (one + exp_of(exponent)) * load<vecw>(from + size + k));
        }
    }

    // Adds linear(rows), normed where there is such a norm, to the stream.
    template <class Make>
    void apply_to_stream(Team& team, int thread, const Linear& linear, const Floats& post_norm, Make make) {
        const bool is_direct = post_norm.empty();
        apply(team, thread, linear, num_rows_, is_direct ? space_.hidden : space_.branch, is_direct, make);
        if (is_direct) return;
        team.share(num_rows_, [&](int first, int last) {
            for (int row = first; row < last; ++row) add_branch(row, post_norm);
        });
        team.barrier();
    }

    void add_branch(int row, const Floats& post_norm) {
        float *branch = space_.branch.row(row), *to = space_.hidden.row(row);
        // A NaN of an earlier pass may have been left behind the end, where the norm's last vector reaches.
        for (size_t k = s_.hidden_size; k < space_.branch.stride; ++k) branch[k] = 0.0f;
        if (!post_norm.empty()) norm(branch, post_norm, branch);
        for (int k = 0; k < s_.hidden_size; k += LANES) store(to + k, load<vec8>(to + k) + load<vec8>(branch + k));
    }

    // The MLP of a layer with experts: each row goes through a few, all rows of an expert through it together.
    void mix_experts(Team& team, int thread, const Layer& l) {
        Routing& routing = space_.routing;
        apply(team, thread, l.router, num_rows_, space_.scores, false, normed_by(l.mlp_norm));
        if (thread == 0)
            routing.make(space_.scores, num_rows_, l.shape.num_experts, l.shape.num_used, l.shape.is_normalised);
        team.barrier();
        apply_by_visit(team, thread, l.expert_gate_up, s_.hidden_size, space_.visit_gate_up, [&](int visit, float* to) {
            norm(space_.hidden.row(routing.visits[visit].row), l.mlp_norm, to);
        });
        apply_by_visit(team, thread, l.expert_down, l.shape.expert_size, space_.visited, [&](int visit, float* to) {
            gate(space_.visit_gate_up.row(visit), l.shape.expert_size, to);
        });
        team.share(num_rows_, [&](int first, int last) {
            for (int row = first; row < last; ++row) {
                sum_visits(row);
                add_branch(row, l.mlp_post_norm);
            }
        });
        team.barrier();
    }

    // out = the visit's expert times what make(visit, to) writes.
    template <class Make>
    void apply_by_visit(Team& team, int thread, const std::vector<Linear>& experts, int num_inputs, const Rows& out,
                        Make make) {
        const Routing& routing = space_.routing;
        team.share(int(routing.visits.size()), [&](int first, int last) {
            for (int visit = first; visit < last; ++visit) {
                const int expert = routing.visits[visit].expert, base = routing.first_visit[expert];
                const Input input = space_.visit_input(num_inputs, base, routing.num_visits(expert));
                float* floats = input.floats.row(visit - base);
                make(visit, floats);
                prepare_row(floats, visit - base, experts[expert], input);
            }
        });
        std::vector<Product>& products = space_.products[thread];
        products.clear();
        for (int expert = 0; expert < int(experts.size()); ++expert) {
            const int first = routing.first_visit[expert], num_rows = routing.num_visits(expert);
            if (num_rows == 0) continue;
            const Rows to{out.row(first), out.stride};
            products.push_back({&experts[expert], space_.visit_input(num_inputs, first, num_rows), num_rows, to, false});
        }
        team.barrier();
        multiply(team, products.data(), int(products.size()));
        team.barrier();
    }

    // branch = the results of a row's visits times their weights.
    void sum_visits(int row) {
        const Routing& routing = space_.routing;
        float* to = space_.branch.row(row);
        for (int k = 0; k < s_.hidden_size; k += LANES) {
            vec8 sum = {};
            for (int rank = 0; rank < routing.num_used; ++rank) {
                const int visit = routing.of_row[size_t(row) * routing.num_used + rank];
                sum = fma(load<vec8>(space_.visited.row(visit) + k), splat<vec8>(routing.visits[visit].weight), sum);
            }
            store(to + k, sum);
        }
    }

    // out (+)= linear(rows), where make(row, to) writes one of its input rows; then all threads meet. A few inputs
    // each thread makes for itself.
    template <class Make>
    void apply(Team& team, int thread, const Linear& linear, int num_rows, const Rows& out, bool is_added, Make make) {
        const int num_inputs = linear.num_inputs();
        const bool is_own = num_rows * space_.stride_of(num_inputs) <= OWN_FLOATS || num_rows == 1;
        const Input own = space_.own_input(thread, num_inputs, num_rows);
        const Input input = is_own ? own : space_.shared_input(num_inputs, num_rows);
        const bool keeps_floats = linear.reads(Reads::floats);
        const auto fill = [&](int first, int last) {
            for (int row = first; row < last; ++row) {
                float* floats = keeps_floats ? input.floats.row(row) : own.floats.data;
                make(row, floats);
                prepare_row(floats, row, linear, input);
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

    // A head of queries or keys: normed where the model does so, rotated where the layer does, scaled.
    void prepare_head(int layer, int row, const float* head, const Floats& weight, float scale, float* to) const {
        const LayerShape& l = w_.layers[layer].shape;
        alignas(LINE_BYTES) float normed[MAX_HEAD_DIM];
        if (!weight.empty()) {
            std::memset(normed, 0, sizeof(normed));
            std::memcpy(normed, head, s_.head_dim * sizeof(float));
            rms_norm(normed, weight.data(), normed, s_.head_dim, s_.rms_norm_eps);
            head = normed;
        }
        const int64_t offset = batch_.positions[row] * (l.rotary_dim / 2);
        const float* cos = l.rotary_dim ? batch_.cos[l.rope] + offset : nullptr;
        const float* sin = l.rotary_dim ? batch_.sin[l.rope] + offset : nullptr;
        rotate(head, to, cos, sin, l.rotary_dim, s_.head_dim, scale);
    }

    // Head by head: keys of neighbouring tokens share lines of memory, which two threads had better not both write.
    void write_cache(int layer, int index) {
        const int kv_head = index / num_rows_, row = index % num_rows_;
        const Segment& segment = plan_.segments[plan_.rows[row].segment];
        const int slot = segment.context_len + row - segment.first_row;
        const float* from = space_.qkv.row(row) + w_.q_size + kv_head * s_.head_dim;
        alignas(LINE_BYTES) float rotated[MAX_HEAD_DIM];
        prepare_head(layer, row, from, w_.layers[layer].k_norm, 1.0f, rotated);
        const int64_t block = segment.blocks[slot / BLOCK];
        T* value = cache_.values(layer, block, kv_head) + slot % BLOCK * s_.head_dim;
        for (int d = 0; d < s_.head_dim; d += LANES) store8(value + d, load<vec8>(from + w_.kv_size + d));
        alignas(LINE_BYTES) T key[MAX_HEAD_DIM];
        for (int d = 0; d < s_.head_dim; d += LANES) store8(key + d, load<vec8>(rotated + d));
        put_key(key, cache_.keys(layer, block, kv_head), slot % BLOCK, s_.head_dim);
    }

    // The chunk of a cache head that begins with key `first`, which lies in one block.
    Chunk<T> chunk(int layer, const Segment& segment, int kv_head, int first) const {
        const int64_t block = segment.blocks[first / BLOCK];
        return {cache_.keys(layer, block, kv_head), cache_.values(layer, block, kv_head), first};
    }

    // The queries attend to keys first .. end, chunk by chunk as they lie in the cache.
    void attend_range(int layer, const Item& item, int first, int end, const Queries& queries) const {
        if (first >= end) return;
        const Segment& segment = plan_.segments[item.segment];
        Chunk<T> current = chunk(layer, segment, item.kv_head, first);
        for (int key = first; key < end; key += CHUNK) {
            const Chunk<T> next = key + CHUNK < end ? chunk(layer, segment, item.kv_head, key + CHUNK) : current;
            attend(current, queries, next);
            current = next;
        }
    }

    // The same for one row of a tree, whose keys are gathered first.
    void attend_path(int layer, const Item& item, const Row& row, int first, const Queries& queries, T* gathered) const {
        const Segment& segment = plan_.segments[item.segment];
        const int hd = s_.head_dim;
        T *keys = gathered, *values = gathered + CHUNK * hd;
        for (int start = first; start < row.num_visible; start += CHUNK) {
            const int count = std::min(row.num_visible - start, CHUNK);
            for (int key = 0; key < count; ++key) {
                const int slot = plan_.slot(row, segment, start + key);
                const Chunk<T> from = chunk(layer, segment, item.kv_head, slot / BLOCK * BLOCK);
                for (int d = 0; d < hd; d += 4 / int(sizeof(T)))
                    std::memcpy(keys + key_index<T>(d, key), from.keys + key_index<T>(d, slot % BLOCK), 4);
                std::memcpy(values + key * hd, from.values + slot % BLOCK * hd, hd * sizeof(T));
            }
            const Chunk<T> whole{keys, values, start};
            attend(whole, queries, whole);
        }
    }

    void attend_item(int layer, const Item& item, float* own) const {
        const Segment& segment = plan_.segments[item.segment];
        const int heads = item.last_head - item.first_head, window = w_.layers[layer].shape.window;
        Queries queries(own, (item.last_row - item.first_row) * heads, s_.head_dim);
        queries.clear();
        for (int query = 0; query < queries.num; ++query)
            set_query(layer, item.first_row + query / heads, item.first_head + query % heads, queries, query);
        int start = plan_.rows[item.first_row].start(window);  // the first key that any of the rows sees
        for (int row = item.first_row; row < item.last_row; ++row)
            start = std::min(start, plan_.rows[row].start(window));
        start = start / CHUNK * CHUNK;
        if (!segment.is_tree) {
            attend_range(layer, item, start, plan_.rows[item.last_row - 1].num_visible, queries);
        } else {  // whole chunks of the context together, those with other branches in them each row by itself
            const int shared = segment.context_len / CHUNK * CHUNK;
            attend_range(layer, item, start, shared, queries);
            T* gathered = reinterpret_cast<T*>(own + Queries::floats(queries.num, s_.head_dim));
            for (int row = item.first_row; row < item.last_row; ++row) {
                const int first = std::max(shared, plan_.rows[row].start(window) / CHUNK * CHUNK);
                attend_path(layer, item, plan_.rows[row], first, queries.part((row - item.first_row) * heads, heads),
                            gathered);
            }
        }
        for (int query = 0; query < queries.num; ++query)
            put_output(item.first_row + query / heads, item.first_head + query % heads, queries, query);
    }

    void set_query(int layer, int row, int head, const Queries& queries, int query) const {
        const int hd = s_.head_dim;
        alignas(LINE_BYTES) float rotated[MAX_HEAD_DIM];
        const Layer& l = w_.layers[layer];
        prepare_head(layer, row, space_.qkv.row(row) + head * hd, l.q_norm, s_.score_scale, rotated);
        for (int d = 0; d < hd; ++d) queries.q[d * queries.stride + query] = rotated[d];
        queries.visible[query] = plan_.rows[row].num_visible;
        queries.start[query] = plan_.rows[row].start(l.shape.window);
    }

    void put_output(int row, int head, const Queries& queries, int query) const {
        const float scale = 1.0f / queries.sum[query];
        const float* out = queries.out + query * s_.head_dim;
        float* to = space_.attended.row(row) + head * s_.head_dim;
        for_spans(s_.head_dim, [&](int d, int size) {
            for (int index = 0; index < size; ++index) to[d + index] = out[d + span_place<T>(index, size)] * scale;
        });
    }

    const Weights& w_;
    const Shape& s_;
    const Plan& plan_;
    const Batch& batch_;
    Workspace& space_;
    const Cache<T>& cache_;
    float* logits_;
    const int num_rows_;
};

}  // namespace dp
