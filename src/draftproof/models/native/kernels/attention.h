// Attention of rows over the paged cache, and the rotary embedding before it.
//
// The numbers promised for one query, whatever shares the pass with it: its visible keys are taken in order, in
// chunks of BLOCK keys counted from the sequence's first token; a score is the product's eight lane sums over
// the head dimension, added by `sum_lanes`; per chunk the running maximum, sum and output are rescaled (the online
// softmax of Milakov & Gimelshein, 2018), then the chunk's values are added key by key, each with one fma.
// A path in a tree is taken in the same chunks as the same tokens in a chain, so it gets the same bits.
#pragma once

#include <vector>

#include "simd.h"

namespace dp {

constexpr int BLOCK = DP_BLOCK_SIZE;  // tokens of a cache block
static_assert(BLOCK == 4 * LANES, "a chunk's probabilities are four vectors");
constexpr int QUERY_TILE = 12;        // queries that share the keys of one cache head at a time

// The cache of all layers: [num_layers][num_blocks][2][num_kv_heads][BLOCK][head_dim], keys first.
template <class T> struct Cache {
    T* data;
    int64_t num_blocks;
    int num_kv_heads, head_dim;

    T* key(int layer, int64_t block, int kv_head, int offset) const {
        return data + (((layer * num_blocks + block) * 2 * num_kv_heads + kv_head) * BLOCK + offset) * head_dim;
    }
    T* value(int layer, int64_t block, int kv_head, int offset) const {
        return key(layer, block, kv_head + num_kv_heads, offset);
    }
};

// Rotates one head (halves layout: element i with element i + head_dim / 2) and scales it.
inline void rotate(const float* from, float* to, const float* cos, const float* sin, int head_dim, float scale) {
    const int half = head_dim / 2;
    for (int d = 0; d < half; d += LANES) {
        const vec8 a = load<vec8>(from + d), b = load<vec8>(from + half + d);
        const vec8 c = load<vec8>(cos + d), s = load<vec8>(sin + d);
        store(to + d, fma(a, c, -(b * s)) * splat<vec8>(scale));
        store(to + half + d, fma(b, c, a * s) * splat<vec8>(scale));
    }
}

// Up to BLOCK keys of one cache head, in order.
template <class T> struct Chunk {
    const T* keys[BLOCK];
    const T* values[BLOCK];
    int count;
};

// Queries of one cache head with the running state of their softmax.
struct Queries {
    float* q;        // [num][head_dim], rotated and scaled
    float* out;      // [num][head_dim]
    float* scores;   // [num][BLOCK]
    float* maximum;  // [num]
    float* sum;      // [num]
    int num, head_dim;

    static size_t floats(int num, int head_dim) { return size_t(num) * (2 * head_dim + BLOCK + 2); }

    Queries(float* memory, int num, int head_dim)
        : q(memory), out(q + num * head_dim), scores(out + num * head_dim), maximum(scores + num * BLOCK),
          sum(maximum + num), num(num), head_dim(head_dim) {}

    Queries from(int first) const { return part(first, num - first); }
    Queries part(int first, int count) const {
        Queries sub = *this;
        sub.q += first * head_dim, sub.out += first * head_dim, sub.scores += first * BLOCK;
        sub.maximum += first, sub.sum += first, sub.num = count;
        return sub;
    }
    void clear() {
        for (int index = 0; index < num * head_dim; ++index) out[index] = 0.0f;
        for (int query = 0; query < num; ++query) {
            maximum[query] = -std::numeric_limits<float>::infinity();
            sum[query] = 0.0f;
        }
    }
};

template <class T, int Q, int K> inline void score_tile(const T* const* keys, const float* q, int head_dim, float* scores) {
    vec8 acc[Q][K];
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int key = 0; key < K; ++key) acc[query][key] = vec8{};
    for (int d = 0; d < head_dim; d += LANES) {
#pragma GCC unroll 16
        for (int key = 0; key < K; ++key) {
            const vec8 k = load8(keys[key] + d);
#pragma GCC unroll 16
            for (int query = 0; query < Q; ++query)
                acc[query][key] = fma(load<vec8>(q + query * head_dim + d), k, acc[query][key]);
        }
    }
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query) {
        if constexpr (K % 4 == 0) {
#pragma GCC unroll 16
            for (int key = 0; key < K; key += 4)
                store(scores + query * BLOCK + key, sum_lanes4(acc[query][key], acc[query][key + 1],
                                                               acc[query][key + 2], acc[query][key + 3]));
        } else {
            for (int key = 0; key < K; ++key) scores[query * BLOCK + key] = sum_lanes(acc[query][key]);
        }
    }
}

template <class T, int Q> inline void score_rows(const Chunk<T>& chunk, const float* q, int head_dim, float* scores) {
    constexpr int K = Q == 1 ? 8 : 4;
    int key = 0;
    for (; key + K <= chunk.count; key += K) score_tile<T, Q, K>(chunk.keys + key, q, head_dim, scores + key);
    for (; key < chunk.count; ++key) score_tile<T, Q, 1>(chunk.keys + key, q, head_dim, scores + key);
}

// Replaces a query's scores by exp(score - maximum), updates maximum and sum; returns the factor for the old state.
inline float softmax_step(float* scores, int count, float& maximum, float& sum) {
    const vec8 nothing = splat<vec8>(-std::numeric_limits<float>::infinity());
    for (int key = count; key < BLOCK; ++key) scores[key] = nothing[0];
    vec8 s[4], p[4], best = nothing;
    for (int part = 0; part < 4; ++part) {
        s[part] = load<vec8>(scores + part * LANES);
        best = s[part] > best ? s[part] : best;
    }
    const float chunk_maximum = max_lanes(best), old_maximum = maximum;
    if (chunk_maximum > maximum) maximum = chunk_maximum;
    for (int part = 0; part < 4; ++part) {
        const vec8 e = exp_of(s[part] - splat<vec8>(maximum));
        p[part] = s[part] == nothing ? vec8{} : e;  // exactly nothing, not exp(-87)
        store(scores + part * LANES, p[part]);
    }
    const float factor = exp_of(splat<vec8>(old_maximum - maximum))[0];
    sum = fma(sum, factor, sum_lanes((p[0] + p[1]) + (p[2] + p[3])));
    return factor;
}

template <class T, int Q, int V>
inline void add_values(const Chunk<T>& chunk, const float* p, const float* factors, float* out, int head_dim, int d) {
    vec8 acc[Q][V];
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < V; ++part)
            acc[query][part] = load<vec8>(out + query * head_dim + d + part * LANES) * splat<vec8>(factors[query]);
    for (int key = 0; key < chunk.count; ++key) {
#pragma GCC unroll 16
        for (int part = 0; part < V; ++part) {
            const vec8 value = load8(chunk.values[key] + d + part * LANES);
#pragma GCC unroll 16
            for (int query = 0; query < Q; ++query)
                acc[query][part] = fma(splat<vec8>(p[query * BLOCK + key]), value, acc[query][part]);
        }
    }
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < V; ++part)
            store(out + query * head_dim + d + part * LANES, acc[query][part]);
}

template <class T, int Q> inline void attend_tile(const Chunk<T>& chunk, const Queries& queries) {
    float factors[Q];
    score_rows<T, Q>(chunk, queries.q, queries.head_dim, queries.scores);
    for (int query = 0; query < Q; ++query)
        factors[query] = softmax_step(queries.scores + query * BLOCK, chunk.count, queries.maximum[query],
                                      queries.sum[query]);
    int d = 0;
    for (; d + 4 * LANES <= queries.head_dim; d += 4 * LANES)
        add_values<T, Q, 4>(chunk, queries.scores, factors, queries.out, queries.head_dim, d);
    for (; d < queries.head_dim; d += LANES)
        add_values<T, Q, 1>(chunk, queries.scores, factors, queries.out, queries.head_dim, d);
}

// All queries attend to all keys of the chunk.
template <class T> inline void attend(const Chunk<T>& chunk, const Queries& queries) {
    int first = 0;
    for (; first + 3 <= queries.num; first += 3) attend_tile<T, 3>(chunk, queries.part(first, 3));
    if (queries.num - first == 2) attend_tile<T, 2>(chunk, queries.part(first, 2));
    if (queries.num - first == 1) attend_tile<T, 1>(chunk, queries.part(first, 1));
}

}  // namespace dp
