// Attention of rows over the paged cache, and the rotary embedding before it.
//
// The numbers promised for one query, whatever shares the pass with it: its visible keys are taken in order, in
// chunks of BLOCK keys counted from the sequence's first token; a score is eight lane sums over the head dimension
// (elements in the order of load_half), added by `sum_lanes`; per chunk the running maximum, sum and output are rescaled (the online
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

// Scores of Q queries and K keys.
template <class T, int Q, int K>
inline void score_tile(const T* const* keys, const float* q, int head_dim, float* scores) {
    vec8 acc[Q * K];
#pragma GCC unroll 16
    for (int index = 0; index < Q * K; ++index) acc[index] = vec8{};
    const auto step = [&](vec8 k, int key, const vec8* part) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int query = 0; query < Q; ++query) acc[query * K + key] = fma(part[query], k, acc[query * K + key]);
    };
    for (int d = 0; d < head_dim; d += 2 * LANES) {
        vec8 part[Q];
#pragma GCC unroll 16
        for (int query = 0; query < Q; ++query) part[query] = in_register(load<vec8>(q + query * head_dim + d));
#pragma GCC unroll 16
        for (int key = 0; key < K; ++key) step(load_half<0>(keys[key] + d), key, part);
#pragma GCC unroll 16
        for (int query = 0; query < Q; ++query)
            part[query] = in_register(load<vec8>(q + query * head_dim + d + LANES));
#pragma GCC unroll 16
        for (int key = 0; key < K; ++key) step(load_half<1>(keys[key] + d), key, part);
    }
    if constexpr (Q * K == LANES) {
        float sums[LANES];
        store(sums, sum_lanes8(acc));
#pragma GCC unroll 16
        for (int query = 0; query < Q; ++query) std::memcpy(scores + query * BLOCK, sums + query * K, K * sizeof(float));
    } else {
        for (int query = 0; query < Q; ++query)
            for (int key = 0; key < K; ++key) scores[query * BLOCK + key] = sum_lanes(acc[query * K + key]);
    }
}

template <class T, int Q> inline void score_rows(const Chunk<T>& chunk, const float* q, int head_dim, float* scores) {
    constexpr int K = LANES / Q;
    int key = 0;
    for (; key + K <= chunk.count; key += K) score_tile<T, Q, K>(chunk.keys + key, q, head_dim, scores + key);
    for (; key < chunk.count; ++key) score_tile<T, Q, 1>(chunk.keys + key, q, head_dim, scores + key);
}

// Replaces a query's scores by exp(score - maximum), updates maximum and sum; returns the factor for the old state.
inline float softmax_step(float* scores, int count, float& maximum, float& sum) {
    for (int key = count; key < BLOCK; ++key) scores[key] = -std::numeric_limits<float>::infinity();
    vec8 p[4];
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) p[part] = load<vec8>(scores + part * LANES);
    const vec8 low = p[0] > p[1] ? p[0] : p[1], high = p[2] > p[3] ? p[2] : p[3];
    const float chunk_maximum = max_lanes(low > high ? low : high), old_maximum = maximum;
    if (chunk_maximum > maximum) maximum = chunk_maximum;
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
        p[part] = exp_of(p[part] - splat<vec8>(maximum));
        store(scores + part * LANES, p[part]);
    }
    if (count < BLOCK) {  // keys that are not there weigh exactly nothing
        for (int key = count; key < BLOCK; ++key) scores[key] = 0.0f;
        for (int part = 0; part < 4; ++part) p[part] = load<vec8>(scores + part * LANES);
    }
    const float factor = maximum == old_maximum ? 1.0f : exp_of(splat<vec8>(old_maximum - maximum))[0];
    sum = fma(sum, factor, sum_lanes((p[0] + p[1]) + (p[2] + p[3])));
    return factor;
}

// Adds the chunk's values to elements d .. d + 16 * V of the queries' outputs (in the order of load_half).
template <class T, int Q, int V>
inline void add_values(const Chunk<T>& chunk, const float* p, const float* factors, float* out, int head_dim, int d) {
    vec8 acc[Q][2 * V];
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < 2 * V; ++part)
            acc[query][part] = load<vec8>(out + query * head_dim + d + part * LANES) * splat<vec8>(factors[query]);
    for (int key = 0; key < chunk.count; ++key) {
        const T* value = chunk.values[key] + d;
        vec8 weight[Q];
#pragma GCC unroll 16
        for (int query = 0; query < Q; ++query) weight[query] = splat<vec8>(p[query * BLOCK + key]);
#pragma GCC unroll 16
        for (int part = 0; part < V; ++part) {
            const vec8 first = load_half<0>(value + 2 * part * LANES);
#pragma GCC unroll 16
            for (int query = 0; query < Q; ++query)
                acc[query][2 * part] = fma(weight[query], first, acc[query][2 * part]);
            const vec8 second = load_half<1>(value + 2 * part * LANES);
#pragma GCC unroll 16
            for (int query = 0; query < Q; ++query)
                acc[query][2 * part + 1] = fma(weight[query], second, acc[query][2 * part + 1]);
        }
    }
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < 2 * V; ++part)
            store(out + query * head_dim + d + part * LANES, acc[query][part]);
}

template <class T, int Q> inline void attend_tile(const Chunk<T>& chunk, const Queries& queries) {
    float factors[Q];
    score_rows<T, Q>(chunk, queries.q, queries.head_dim, queries.scores);
    for (int query = 0; query < Q; ++query)
        factors[query] = softmax_step(queries.scores + query * BLOCK, chunk.count, queries.maximum[query],
                                      queries.sum[query]);
    int d = 0;
    constexpr int PAIRS = Q == 1 ? 4 : 2;
    for (; d + 2 * PAIRS * LANES <= queries.head_dim; d += 2 * PAIRS * LANES)
        add_values<T, Q, PAIRS>(chunk, queries.scores, factors, queries.out, queries.head_dim, d);
    for (; d < queries.head_dim; d += 2 * LANES)
        add_values<T, Q, 1>(chunk, queries.scores, factors, queries.out, queries.head_dim, d);
}

// All queries attend to all keys of the chunk.
template <class T> inline void attend(const Chunk<T>& chunk, const Queries& queries) {
    int first = 0;
    for (; first + 2 <= queries.num; first += 2) attend_tile<T, 2>(chunk, queries.part(first, 2));
    if (first < queries.num) attend_tile<T, 1>(chunk, queries.part(first, 1));
}

}  // namespace dp
