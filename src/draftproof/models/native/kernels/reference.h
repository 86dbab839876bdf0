// The same pass, written as slowly and plainly as possible: one thread, one row after the other, scalars only.
// It is the definition of every bit that model.h must produce; tests compare the two with ==.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "model.h"

namespace dp {

typedef std::vector<float> Floats;

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

inline Floats reference_norm(const Floats& x, const float* weight, float eps) {
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

template <class T> float reference_product(const Matrix<T>& matrix, int place, const float* x) {
    float total = 0.0f;
    for (int begin = 0; begin < matrix.num_inputs; begin += matrix.k_block) {
        const int end = std::min(begin + matrix.k_block, matrix.num_inputs);
        float chain = 0.0f;
        for (int k = begin; k < end; ++k) chain = std::fmaf(matrix.weight(place, k), x[k], chain);
        total = begin == 0 ? chain : total + chain;
    }
    return matrix.bias ? total + matrix.bias[place] : total;
}

template <class T> Floats reference_linear(const Matrix<T>& matrix, const Floats& x) {
    Floats out(matrix.num_channels);
    for (int channel = 0; channel < matrix.num_channels; ++channel)
        out[channel] = reference_product(matrix, channel, x.data());
    return out;
}

inline Floats reference_rotate(const float* x, const float* cos, const float* sin, int head_dim, float scale) {
    const int half = head_dim / 2;
    Floats out(head_dim);
    for (int d = 0; d < half; ++d) {
        out[d] = std::fmaf(x[d], cos[d], -(x[half + d] * sin[d])) * scale;
        out[half + d] = std::fmaf(x[half + d], cos[d], x[d] * sin[d]) * scale;
    }
    return out;
}

// In each group of sixteen elements the even ones come first when they are bfloat16.
template <class T> float reference_score(const Floats& q, const T* key) {
    float lanes[8] = {};
    for (size_t index = 0; index < q.size(); ++index) {
        const size_t in_group = index % 16;
        const size_t d = sizeof(T) == 4 ? index : index - in_group + 2 * (in_group % 8) + in_group / 8;
        lanes[index % 8] = std::fmaf(q[d], to_float(key[d]), lanes[index % 8]);
    }
    return reference_sum_lanes(lanes);
}

// Attention of one query to its keys; `slots` are the slots of its visible keys in order.
template <class T>
Floats reference_attend(const Floats& q, const Cache<T>& cache, int layer, int kv_head, const Segment& segment,
                        const std::vector<int>& slots) {
    Floats out(q.size(), 0.0f);
    float maximum = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for (size_t begin = 0; begin < slots.size(); begin += CHUNK) {
        const size_t count = std::min(slots.size() - begin, size_t(CHUNK));
        float p[CHUNK], lanes[8] = {};
        const float old_maximum = maximum;
        for (size_t key = 0; key < count; ++key) {
            const int slot = slots[begin + key];
            p[key] = reference_score(q, cache.key(layer, segment.blocks[slot / BLOCK], kv_head, slot % BLOCK));
            maximum = p[key] > maximum ? p[key] : maximum;
        }
        for (size_t key = 0; key < count; ++key) {
            p[key] = reference_exp(p[key] - maximum);
            lanes[key % 8] = lanes[key % 8] + p[key];
        }
        const float factor = reference_exp(old_maximum - maximum);
        sum = std::fmaf(sum, factor, reference_sum_lanes(lanes));
        for (size_t d = 0; d < q.size(); ++d) {
            out[d] = out[d] * factor;
            for (size_t key = 0; key < count; ++key) {
                const int slot = slots[begin + key];
                const T* value = cache.value(layer, segment.blocks[slot / BLOCK], kv_head, slot % BLOCK);
                out[d] = std::fmaf(p[key], to_float(value[d]), out[d]);
            }
        }
    }
    for (float& value : out) value = value * (1.0f / sum);
    return out;
}

template <class T> class Reference {
  public:
    Reference(const Weights<T>& w, const Plan& plan, const Batch& batch, const Cache<T>& cache)
        : w_(w), s_(w.shape), plan_(plan), batch_(batch), cache_(cache) {}

    void run(float* logits) {
        std::vector<Floats> x(batch_.num_rows, Floats(s_.hidden_size));
        for (size_t row = 0; row < x.size(); ++row)
            for (int k = 0; k < s_.hidden_size; ++k)
                x[row][k] = w_.embedding.weight(int(batch_.token_ids[row]), k);
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
    Floats rotated(int row, const float* head, float scale) const {
        const int64_t offset = batch_.positions[row] * (s_.head_dim / 2);
        return reference_rotate(head, batch_.cos + offset, batch_.sin + offset, s_.head_dim, scale);
    }

    const Segment& segment_of(int row) const { return plan_.segments[plan_.rows[row].segment]; }

    void write_cache(int layer, int row, const Floats& qkv) {
        const Segment& segment = segment_of(row);
        const int slot = segment.context_len + row - segment.first_row;
        for (int kv_head = 0; kv_head < s_.num_kv_heads; ++kv_head) {
            const float* from = qkv.data() + w_.q_size + kv_head * s_.head_dim;
            const Floats key = rotated(row, from, 1.0f);
            for (int d = 0; d < s_.head_dim; ++d) {
                const int64_t block = segment.blocks[slot / BLOCK];
                cache_.key(layer, block, kv_head, slot % BLOCK)[d] = from_float<T>(key[d]);
                cache_.value(layer, block, kv_head, slot % BLOCK)[d] = from_float<T>(from[w_.kv_size + d]);
            }
        }
    }

    // Attention and MLP of one row, added to its residual stream.
    void finish_row(int layer, int row, const Floats& qkv, Floats& x) {
        const Layer<T>& l = w_.layers[layer];
        std::vector<int> slots;
        for (int key = 0; key < plan_.rows[row].num_visible; ++key)
            slots.push_back(plan_.slot(plan_.rows[row], segment_of(row), key));
        Floats attended;
        const int group = s_.num_heads / s_.num_kv_heads;
        for (int head = 0; head < s_.num_heads; ++head) {
            const Floats q = rotated(row, qkv.data() + head * s_.head_dim, 1.0f / std::sqrt(float(s_.head_dim)));
            const Floats out = reference_attend(q, cache_, layer, head / group, segment_of(row), slots);
            attended.insert(attended.end(), out.begin(), out.end());
        }
        add(x, reference_linear(l.o, attended));
        const Floats normed = reference_norm(x, l.post_norm, s_.rms_norm_eps);
        Floats gated(s_.intermediate_size);
        for (int channel = 0; channel < s_.intermediate_size; ++channel) {
            const float gate = reference_product(l.gate_up, l.gate_up.place(channel, Layout::low_half), normed.data());
            const float up = reference_product(l.gate_up, l.gate_up.place(channel, Layout::high_half), normed.data());
            gated[channel] = gate / (1.0f + reference_exp(-gate)) * up;
        }
        add(x, reference_linear(l.down, gated));
    }

    static void add(Floats& x, const Floats& y) {
        for (size_t k = 0; k < x.size(); ++k) x[k] = x[k] + y[k];
    }

    const Weights<T>& w_;
    const Shape& s_;
    const Plan& plan_;
    const Batch& batch_;
    const Cache<T>& cache_;
};

}  // namespace dp
