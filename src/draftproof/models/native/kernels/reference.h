// The same pass, written as slowly and plainly as possible: one thread, one row after the other, scalars only.
// It is the definition of every bit that model.h must produce; tests compare the two with ==.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "matrix.h"
#include "matrix_amx.h"
#include "model.h"
#include "quantized.h"
#include "quantized_amx.h"

namespace dp {

inline float reference_sum_lanes(const float* v) {
    return ((v[0] + v[2]) + (v[1] + v[3])) + ((v[4] + v[6]) + (v[5] + v[7]));
}

inline float reference_exp(float x) {
    if (x < -EXP_LIMIT) x = -EXP_LIMIT;
    if (x > EXP_LIMIT) x = EXP_LIMIT;
    const float shifted = std::fmaf(x, LOG2_E, ROUNDER);
    const float whole = shifted - ROUNDER;
    const float rest = std::fmaf(whole, -LN2_LOW, std::fmaf(whole, -LN2_HIGH, x));
    float poly = EXP_TERMS[0];
    for (int term = 1; term < 6; ++term) poly = std::fmaf(poly, rest, EXP_TERMS[term]);
    const uint32_t power = (load<uint32_t>(&shifted) << 23) + 0x3f800000u;
    return (std::fmaf(poly, rest * rest, rest) + 1.0f) * load<float>(&power);
}

inline Floats reference_norm(const Floats& x, const Floats& weight, float eps) {
    float sums[32] = {};
    for (size_t index = 0; index < x.size(); ++index) sums[index % 32] = std::fmaf(x[index], x[index], sums[index % 32]);
    float lanes[8];
    for (int lane = 0; lane < 8; ++lane)
        lanes[lane] = (sums[lane] + sums[8 + lane]) + (sums[16 + lane] + sums[24 + lane]);
    const float scale = 1.0f / std::sqrt(reference_sum_lanes(lanes) / float(x.size()) + eps);
    Floats out(x.size());
    for (size_t index = 0; index < x.size(); ++index) out[index] = x[index] * scale * weight[index];
    return out;
}

template <class T> float Matrix<T>::chain(int channel, const Floats& x, int begin, int end) const {
    float chain = 0.0f;
    for (int word = begin; word < end; word += INPUTS)
        for (int k = std::min(word + INPUTS, end) - 1; k >= word; --k)
            chain = std::fmaf(weight(channel, k), to_float(from_float<T>(x[k])), chain);
    return chain;
}

template <class T> float Matrix<T>::even_and_odd(int channel, const Floats& x, int begin, int end) const {
    float chains[2] = {};
    for (int k = begin; k < end; ++k)
        chains[k % 2] = std::fmaf(weight(channel, k), to_float(from_float<T>(x[k])), chains[k % 2]);
    return chains[0] + chains[1];
}

template <class T> Floats Matrix<T>::reference(const Floats& x) const {
    Floats out(num_channels);
    const bool has_tiles = USES_AMX && has_amx();
    const int k_block = has_tiles ? INPUTS * AMX_ROWS : k_block_of(num_inputs);
    for (int channel = 0; channel < num_channels; ++channel)
        for (int begin = 0; begin < num_inputs; begin += k_block) {
            const int end = std::min(begin + k_block, num_inputs);
            const float sum = has_tiles ? even_and_odd(channel, x, begin, end) : chain(channel, x, begin, end);
            out[channel] = begin == 0 ? sum : out[channel] + sum;
        }
    return out;
}

// `size` activations as integers.
struct ReferenceBlock {
    float scale;
    std::vector<int> values;

    ReferenceBlock(const float* x, int size) : scale(0.0f), values(size, 0) {
        float largest = 0.0f;
        for (int k = 0; k < size; ++k) {
            if (!std::isfinite(x[k])) {
                scale = std::numeric_limits<float>::quiet_NaN();
                return;
            }
            largest = std::max(largest, std::fabs(x[k]));
        }
        if (largest < SMALLEST_BLOCK) return;
        scale = largest / INT8_LIMIT;
        for (int k = 0; k < size; ++k) values[k] = int(std::nearbyint(x[k] * (INT8_LIMIT / largest)));
    }
    int sum(int first, int count) const { return std::accumulate(&values[first], &values[first] + count, 0); }
};

template <class F> Floats Quantized<F>::reference(const Floats& x) const {
    typedef typename F::Scales Scales;
    constexpr int RUN = BLOCK_INPUTS / Scales::SCALES_PER_SUB;  // inputs with one scale
    Floats out(num_channels);
    for (int index = 0; index < units_; ++index) {
        const ReferenceBlock block(x.data() + index * F::INPUTS, F::INPUTS);
        for (int channel = 0; channel < num_channels; ++channel) {
            const uint8_t* from = unit(channel / TILE, index);
            const int lane = channel % TILE;
            float part = 0.0f;
            int minima = 0;
            for (int begin = 0; begin < F::INPUTS; begin += RUN) {
                const int sub = begin / BLOCK_INPUTS, first = begin % BLOCK_INPUTS;
                int dot = 0;
                for (int k = 0; k < RUN; ++k) {
                    const uint8_t* payload = from + Scales::BYTES + sub * F::PAYLOAD;
                    dot += (get_integer<F::BITS>(payload, lane, first + k) - F::OFFSET) * block.values[begin + k];
                }
                const float scale = Scales::scale_at(from, lane, sub, first / RUN);
                if constexpr (F::IS_SUPER) {
                    part = std::fmaf(float(dot), scale, part);
                    if constexpr (Scales::HAS_MINIMUM)
                        minima += from[Scales::minimum_factor_at(lane, sub)] * block.sum(begin, RUN);
                } else {
                    out[channel] = std::fmaf(float(dot), scale * block.scale, out[channel]);
                    if constexpr (Scales::HAS_MINIMUM)
                        out[channel] = std::fmaf(half_at(from, TILE + lane), block.scale * float(block.sum(0, RUN)), out[channel]);
                }
            }
            if constexpr (F::IS_SUPER) {
                if constexpr (Scales::HAS_MINIMUM) part = std::fmaf(float(minima), -half_at(from, TILE + lane), part);
                out[channel] = std::fmaf(part, block.scale, out[channel]);
            }
        }
    }
    return out;
}

inline Floats reference_linear(const Linear& linear, const Floats& x) {
    Floats out;
    for (const Linear::Piece& piece : linear.pieces) {
        const Floats sums = piece.storage->reference(x);
        out.insert(out.end(), sums.begin(), sums.end());
    }
    for (size_t channel = 0; channel < linear.bias.size(); ++channel) out[channel] = out[channel] + linear.bias[channel];
    return out;
}

inline Floats reference_rotate(const Floats& x, const float* cos, const float* sin, int rotary_dim, float scale) {
    const int half = rotary_dim / 2;
    Floats out(x.size());
    for (int d = 0; d < half; ++d) {
        out[d] = std::fmaf(x[d], cos[d], -(x[half + d] * sin[d])) * scale;
        out[half + d] = std::fmaf(x[half + d], cos[d], x[d] * sin[d]) * scale;
    }
    for (size_t d = rotary_dim; d < x.size(); ++d) out[d] = x[d] * scale;
    return out;
}

inline float reference_weight(float x) { return x < COUNTS_FROM ? 0.0f : reference_exp(x); }

template <class T> float reference_score(const Floats& q, const T* keys, int key) {
    float even = 0.0f, odd = 0.0f;
    for (size_t d = 0; d < q.size(); d += 2) {
        even = std::fmaf(q[d], to_float(keys[key_index<T>(int(d), key)]), even);
        odd = std::fmaf(q[d + 1], to_float(keys[key_index<T>(int(d) + 1, key)]), odd);
    }
    return even + odd;
}

// Attention of one query to its keys; `slots` are the slots of its path's keys in order, of which it sees those from
// `start` on.
template <class T>
Floats reference_attend(const Floats& q, const Cache<T>& cache, int layer, int kv_head, const Segment& segment,
                        const std::vector<int>& slots, size_t start) {
    Floats out(q.size(), 0.0f);
    float maximum = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for (size_t chunk = start / CHUNK * CHUNK; chunk < slots.size(); chunk += CHUNK) {
        const size_t begin = std::max(chunk, start), end = std::min(slots.size(), chunk + CHUNK);
        float p[CHUNK] = {}, lanes[8];
        const float old_maximum = maximum;
        for (size_t key = begin; key < end; ++key) {
            const T* keys = cache.keys(layer, segment.blocks[slots[key] / BLOCK], kv_head);
            p[key - chunk] = reference_score(q, keys, slots[key] % BLOCK);
            maximum = p[key - chunk] > maximum ? p[key - chunk] : maximum;
        }
        for (size_t key = begin; key < end; ++key) p[key - chunk] = reference_weight(p[key - chunk] - maximum);
        for (int lane = 0; lane < 8; ++lane) lanes[lane] = (p[lane] + p[16 + lane]) + (p[8 + lane] + p[24 + lane]);
        const float factor = reference_weight(old_maximum - maximum);
        sum = std::fmaf(sum, factor, reference_sum_lanes(lanes));
        for (size_t d = 0; d < q.size(); ++d) {
            out[d] = out[d] * factor;
            for (size_t key = begin; key < end; ++key) {
                const T* values = cache.values(layer, segment.blocks[slots[key] / BLOCK], kv_head);
                out[d] = std::fmaf(p[key - chunk], to_float(values[slots[key] % BLOCK * q.size() + d]), out[d]);
            }
        }
    }
    for (float& value : out) value = value * (1.0f / sum);
    return out;
}

template <class T> class Reference {
  public:
    Reference(const Weights& w, const Plan& plan, const Batch& batch, const Cache<T>& cache)
        : w_(w), s_(w.shape), plan_(plan), batch_(batch), cache_(cache) {}

    void run(float* logits) {
        std::vector<Floats> x(batch_.num_rows, Floats(s_.hidden_size));
        for (size_t row = 0; row < x.size(); ++row)
            embed(int(batch_.token_ids[row]), x[row]);
        for (int layer = 0; layer < s_.num_layers; ++layer) {
            std::vector<Floats> qkv;
            for (size_t row = 0; row < x.size(); ++row) {
                qkv.push_back(reference_linear(w_.layers[layer].qkv,
                                               reference_norm(x[row], w_.layers[layer].input_norm, s_.rms_norm_eps)));
                write_cache(layer, int(row), qkv[row]);
            }
            for (size_t row = 0; row < x.size(); ++row) finish_row(layer, int(row), qkv[row], x[row]);
        }
        for (int64_t index = 0; index < batch_.num_logit_rows; ++index) {
            const Floats& row = x[batch_.logit_rows[index]];
            const Floats out = reference_linear(w_.head, reference_norm(row, w_.final_norm, s_.rms_norm_eps));
            std::copy(out.begin(), out.end(), logits + index * s_.vocab_size);
        }
    }

  private:
    void embed(int token, Floats& x) const {
        w_.embedding->read_channel(token, x.data());
        if (s_.embedding_scale == 1.0f) return;
        for (float& value : x) value = to_float(from_float<T>(value * s_.embedding_scale));
    }

    Floats prepared(int layer, int row, const float* head, const Floats& norm, float scale) const {
        const LayerShape& l = w_.layers[layer].shape;
        Floats x(head, head + s_.head_dim);
        if (!norm.empty()) x = reference_norm(x, norm, s_.rms_norm_eps);
        const int64_t offset = batch_.positions[row] * (l.rotary_dim / 2);
        const bool is_rotated = l.rotary_dim > 0;
        return reference_rotate(x, is_rotated ? batch_.cos[l.rope] + offset : nullptr,
                                is_rotated ? batch_.sin[l.rope] + offset : nullptr, l.rotary_dim, scale);
    }

    const Segment& segment_of(int row) const { return plan_.segments[plan_.rows[row].segment]; }

    void write_cache(int layer, int row, const Floats& qkv) {
        const Segment& segment = segment_of(row);
        const int slot = segment.context_len + row - segment.first_row;
        for (int kv_head = 0; kv_head < s_.num_kv_heads; ++kv_head) {
            const float* from = qkv.data() + w_.q_size + kv_head * s_.head_dim;
            const Floats key = prepared(layer, row, from, w_.layers[layer].k_norm, 1.0f);
            for (int d = 0; d < s_.head_dim; ++d) {
                const int64_t block = segment.blocks[slot / BLOCK];
                cache_.keys(layer, block, kv_head)[key_index<T>(d, slot % BLOCK)] = from_float<T>(key[d]);
                cache_.values(layer, block, kv_head)[slot % BLOCK * s_.head_dim + d] = from_float<T>(from[w_.kv_size + d]);
            }
        }
    }

    // Attention and MLP of one row, added to its residual stream.
    void finish_row(int layer, int row, const Floats& qkv, Floats& x) {
        const Layer& l = w_.layers[layer];
        std::vector<int> slots;
        for (int key = 0; key < plan_.rows[row].num_visible; ++key)
            slots.push_back(plan_.slot(plan_.rows[row], segment_of(row), key));
        Floats attended;
        const int group = s_.num_heads / s_.num_kv_heads;
        for (int head = 0; head < s_.num_heads; ++head) {
            const Floats q = prepared(layer, row, qkv.data() + head * s_.head_dim, l.q_norm, s_.score_scale);
            const Floats out = reference_attend(q, cache_, layer, head / group, segment_of(row), slots,
                                                plan_.rows[row].start(l.shape.window));
            attended.insert(attended.end(), out.begin(), out.end());
        }
        add(x, post_normed(reference_linear(l.o, attended), l.attention_post_norm));
        const Floats normed = reference_norm(x, l.mlp_norm, s_.rms_norm_eps);
        const Floats result = l.shape.num_experts ? mixed(l, normed) : gated(l.gate_up, l.down, normed);
        add(x, post_normed(result, l.mlp_post_norm));
    }

    Floats gated(const Linear& gate_up, const Linear& down, const Floats& normed) const {
        const Floats both = reference_linear(gate_up, normed);
        const size_t size = both.size() / 2;
        Floats product(size);
        for (size_t k = 0; k < size; ++k) {
            const float gate = both[k];
            float exponent = -gate;
            if (s_.activation == GELU_TANH) exponent = std::fmaf(gate * gate * gate, GELU_CUBE, gate) * -GELU_SLOPE;
            product[k] = gate / (1.0f + reference_exp(exponent)) * both[size + k];
        }
        return reference_linear(down, product);
    }

    Floats mixed(const Layer& l, const Floats& normed) const {
        const Floats scores = reference_linear(l.router, normed);
        std::vector<int> order(scores.size());
        for (size_t expert = 0; expert < order.size(); ++expert) order[expert] = int(expert);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
        float total = 0.0f, chosen = 0.0f;
        for (float score : scores) total = total + reference_exp(score - scores[order[0]]);
        Floats weights(scores.size(), 0.0f);
        for (int rank = 0; rank < l.shape.num_used; ++rank) {
            weights[order[rank]] = reference_exp(scores[order[rank]] - scores[order[0]]) / total;
            chosen = chosen + weights[order[rank]];
        }
        std::sort(order.begin(), order.begin() + l.shape.num_used);
        Floats sum(normed.size(), 0.0f);
        for (int rank = 0; rank < l.shape.num_used; ++rank) {
            const int expert = order[rank];
            const float weight = l.shape.is_normalised ? weights[expert] / chosen : weights[expert];
            const Floats result = gated(l.expert_gate_up[expert], l.expert_down[expert], normed);
            for (size_t k = 0; k < sum.size(); ++k) sum[k] = std::fmaf(result[k], weight, sum[k]);
        }
        return sum;
    }

    Floats post_normed(const Floats& x, const Floats& norm) const {
        return norm.empty() ? x : reference_norm(x, norm, s_.rms_norm_eps);
    }

    static void add(Floats& x, const Floats& y) {
        for (size_t k = 0; k < x.size(); ++k) x[k] = x[k] + y[k];
    }

    const Weights& w_;
    const Shape& s_;
    const Plan& plan_;
    const Batch& batch_;
    const Cache<T>& cache_;
};

}  // namespace dp
