// Attention of rows over the paged cache, and the rotary embedding before it.
//
// The numbers promised for one query, whatever shares the pass with it: its visible keys are taken in order, in
// chunks of CHUNK keys counted from the sequence's first token; a score is eight lane sums over the head dimension
// (elements in the order of load_half), added by `sum_lanes`; per chunk the running maximum, sum and output are
// rescaled (the online softmax of Milakov & Gimelshein, 2018), then the chunk's values are added key by key, each
// with one fma. Where a layer has a window, a chunk that it cuts begins with the first key that is seen. A path in a tree is taken in the same chunks as the same tokens in a chain, so it gets the same bits.
#pragma once

#include <algorithm>
#include <vector>

#include "memory.h"
#include "simd.h"

namespace dp {

constexpr int BLOCK = DP_BLOCK_SIZE;  // tokens of a cache block
constexpr int CHUNK = BLOCK;          // keys between two rescalings: with the next ones they fit the nearest cache
static_assert(CHUNK % LANES == 0, "scores of a chunk are whole vectors");
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

// Rotates the first rotary_dim elements of a head (halves layout: element i with element i + rotary_dim / 2; 0: none)
// and scales all.
inline void rotate(const float* from, float* to, const float* cos, const float* sin, int rotary_dim, int head_dim,
                   float scale) {
    const int half = rotary_dim / 2;
    for (int d = 0; d < half; d += LANES) {
        const vec8 a = load<vec8>(from + d), b = load<vec8>(from + half + d);
        const vec8 c = load<vec8>(cos + d), s = load<vec8>(sin + d);
        store(to + d, fma(a, c, -(b * s)) * splat<vec8>(scale));
        store(to + half + d, fma(b, c, a * s) * splat<vec8>(scale));
    }
    for (int d = rotary_dim; d < head_dim; d += LANES) store(to + d, load<vec8>(from + d) * splat<vec8>(scale));
}

// Up to CHUNK keys of one cache head, in order; the keys are padded with repetitions to whole vectors of scores.
template <class T> struct Chunk {
    const T* keys[CHUNK];
    const T* values[CHUNK];
    int first, count;

    void pad() {
        for (int key = count; key % LANES; ++key) keys[key] = keys[count - 1];
    }
    // The same without the keys before that one.
    Chunk without(int before) const {
        const int skipped = before - first;
        Chunk rest;
        std::copy(keys + skipped, keys + count, rest.keys);
        std::copy(values + skipped, values + count, rest.values);
        rest.first = before, rest.count = count - skipped;
        rest.pad();
        return rest;
    }
};

// Asks memory for the next chunk while this one is worked on: one line of it every so many steps of the work. Many
// requests at once would fill the processor's queue of misses, and then it stands still.
template <class T> class Ahead {
  public:
    Ahead(const Chunk<T>* next, int head_dim, int num_steps) : next_(next), row_bytes_(head_dim * int(sizeof(T))) {
        const int lines = next ? 2 * next->count * ((row_bytes_ + int(LINE_BYTES) - 1) / int(LINE_BYTES)) : 0;
        rate_ = (lines * ONE + num_steps - 1) / num_steps;
    }
    void step() {
        for (credit_ += rate_; credit_ >= ONE; credit_ -= ONE) request();
    }

  private:
    static constexpr int ONE = 256;

    void request() {
        if (row_ >= 2 * next_->count) return;
        const T* row = row_ < next_->count ? next_->keys[row_] : next_->values[row_ - next_->count];
        __builtin_prefetch(reinterpret_cast<const char*>(row) + byte_);
        byte_ += int(LINE_BYTES);
        if (byte_ >= row_bytes_) byte_ = 0, ++row_;
    }

    const Chunk<T>* next_;
    int row_bytes_, rate_, credit_ = 0, row_ = 0, byte_ = 0;
};

// Queries of one cache head with the running state of their softmax. Rows stand in the order of their positions.
struct Queries {
    float* q;        // [num][head_dim], rotated and scaled
    float* out;      // [num][head_dim]
    float* scores;   // [num][CHUNK]
    float* maximum;  // [num]
    float* sum;      // [num]
    int* visible;    // [num] keys up to the last one that a query sees, counted from the sequence's first token
    int* start;      // [num] the first key that it sees
    int num, head_dim;

    static size_t floats(int num, int head_dim) { return size_t(num) * (2 * head_dim + CHUNK + 4); }

    Queries(float* memory, int num, int head_dim)
        : q(memory), out(q + num * head_dim), scores(out + num * head_dim), maximum(scores + num * CHUNK),
          sum(maximum + num), visible(reinterpret_cast<int*>(sum + num)), start(visible + num), num(num),
          head_dim(head_dim) {}

    Queries part(int first, int count) const {
        Queries sub = *this;
        sub.q += first * head_dim, sub.out += first * head_dim, sub.scores += first * CHUNK;
        sub.maximum += first, sub.sum += first, sub.visible += first, sub.start += first, sub.num = count;
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

// Scores of Q queries and LANES / Q keys, query by query.
template <class T, int Q>
inline vec8 score_tile(const T* const* keys, const float* q, int head_dim, Ahead<T>& ahead) {
    constexpr int K = LANES / Q;
    vec8 acc[LANES];
#pragma GCC unroll 16
    for (int index = 0; index < LANES; ++index) acc[index] = vec8{};
    const auto step = [&](vec8 k, int key, const vec8* part) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int query = 0; query < Q; ++query) acc[query * K + key] = fma(part[query], k, acc[query * K + key]);
    };
    for (int d = 0; d < head_dim; d += 2 * LANES) {
        ahead.step();
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
    return sum_lanes8(acc);
}

template <class T, int Q>
inline void score_rows(const Chunk<T>& chunk, const float* q, int head_dim, float* scores, Ahead<T>& ahead) {
    for (int key = 0; key < chunk.count; key += LANES) {
        const vec8 first = score_tile<T, Q>(chunk.keys + key, q, head_dim, ahead);
        if constexpr (Q == 1) {
            store(scores + key, first);
        } else {
            const vec8 second = score_tile<T, Q>(chunk.keys + key + LANES / 2, q, head_dim, ahead);
            store(scores + key, __builtin_shufflevector(first, second, 0, 1, 2, 3, 8, 9, 10, 11));
            store(scores + CHUNK + key, __builtin_shufflevector(first, second, 4, 5, 6, 7, 12, 13, 14, 15));
        }
    }
}

// Replaces a query's `count` scores by exp(score - maximum), updates maximum and sum; returns the factor by which
// what was summed before must shrink.
inline float softmax_step(float* scores, int count, float& maximum, float& sum) {
    constexpr float NOTHING = -std::numeric_limits<float>::infinity();
    const vec8 numbers = {0, 1, 2, 3, 4, 5, 6, 7};
    const int whole = count / LANES * LANES;
    vec8 best = splat<vec8>(NOTHING);
    for (int key = 0; key < whole; key += LANES) {
        const vec8 s = load<vec8>(scores + key);
        best = s > best ? s : best;
    }
    if (whole < count) {
        const vec8 s = load<vec8>(scores + whole);
        best = numbers < splat<vec8>(float(count - whole)) && s > best ? s : best;
    }
    const float chunk_maximum = max_lanes(best), old_maximum = maximum;
    if (chunk_maximum > maximum) maximum = chunk_maximum;
    const vec8 top = splat<vec8>(maximum);
    vec8 total = {};
    for (int key = 0; key < whole; key += LANES) {
        const vec8 p = exp_of(load<vec8>(scores + key) - top);
        store(scores + key, p);
        total = total + p;
    }
    if (whole < count) {
        const vec8 p = exp_of(load<vec8>(scores + whole) - top);
        store(scores + whole, p);
        total = total + (numbers < splat<vec8>(float(count - whole)) ? p : vec8{});
    }
    const float factor = maximum == old_maximum ? 1.0f : exp_of(splat<vec8>(old_maximum - maximum))[0];
    sum = fma(sum, factor, sum_lanes(total));
    return factor;
}

// Adds the chunk's values to elements d .. d + 16 * V of the queries' outputs (in the order of load_half).
template <class T, int Q, int V>
inline void add_values(const Chunk<T>& chunk, const Queries& queries, const int* counts, const float* factors, int d,
                       Ahead<T>& ahead) {
    float* out = queries.out + d;
    vec8 acc[Q][2 * V];
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < 2 * V; ++part)
            acc[query][part] = load<vec8>(out + query * queries.head_dim + part * LANES) * splat<vec8>(factors[query]);
    int key = 0;
    for (const int shared = counts[0] < counts[Q - 1] ? counts[0] : counts[Q - 1]; key < shared; ++key) {
        ahead.step();
        const T* value = chunk.values[key] + d;
        vec8 weight[Q];
#pragma GCC unroll 16
        for (int query = 0; query < Q; ++query) weight[query] = splat<vec8>(queries.scores[query * CHUNK + key]);
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
    for (; Q > 1 && key < counts[Q - 1]; ++key) {  // the later row sees more keys
        const T* value = chunk.values[key] + d;
        const vec8 weight = splat<vec8>(queries.scores[(Q - 1) * CHUNK + key]);
#pragma GCC unroll 16
        for (int part = 0; part < V; ++part) {
            acc[Q - 1][2 * part] = fma(weight, load_half<0>(value + 2 * part * LANES), acc[Q - 1][2 * part]);
            acc[Q - 1][2 * part + 1] = fma(weight, load_half<1>(value + 2 * part * LANES), acc[Q - 1][2 * part + 1]);
        }
    }
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < 2 * V; ++part)
            store(out + query * queries.head_dim + part * LANES, acc[query][part]);
}

template <class T, int Q>
inline void attend_tile(const Chunk<T>& chunk, const Queries& queries, Ahead<T>& ahead) {
    static_assert(Q == 1 || Q == 2, "add_values tells two counts apart");
    constexpr int PAIRS = Q == 1 ? 4 : 2;
    float factors[Q];
    int counts[Q];
    score_rows<T, Q>(chunk, queries.q, queries.head_dim, queries.scores, ahead);
    for (int query = 0; query < Q; ++query) {
        const int left = queries.visible[query] - chunk.first;
        counts[query] = left < chunk.count ? left : chunk.count;
        factors[query] = softmax_step(queries.scores + query * CHUNK, counts[query], queries.maximum[query],
                                      queries.sum[query]);
    }
    int d = 0;
    for (; d + 2 * PAIRS * LANES <= queries.head_dim; d += 2 * PAIRS * LANES)
        add_values<T, Q, PAIRS>(chunk, queries, counts, factors, d, ahead);
    for (; d < queries.head_dim; d += 2 * LANES) add_values<T, Q, 1>(chunk, queries, counts, factors, d, ahead);
}

// Each query attends to those keys of the chunk that it sees; `next` is the chunk after it, or null.
template <class T> inline void attend(const Chunk<T>& chunk, const Queries& queries, const Chunk<T>* next) {
    const auto sees_some = [&](int query) {
        return queries.visible[query] > chunk.first && queries.start[query] < chunk.first + chunk.count;
    };
    const auto sees_first = [&](int query) { return sees_some(query) && queries.start[query] <= chunk.first; };
    int query = 0;
    while (query < queries.num && !sees_some(query)) ++query;
    if (query == queries.num) return;
    // Steps of a tile: those of the scores, then one for every key and 16 * PAIRS elements.
    const int num_tiles = (queries.num - query + 1) / 2;
    Ahead<T> ahead(next, queries.head_dim, num_tiles * CHUNK * queries.head_dim / 32);
    while (query < queries.num) {
        if (!sees_some(query)) {
            ++query;
        } else if (!sees_first(query)) {
            attend_tile<T, 1>(chunk.without(queries.start[query]), queries.part(query, 1), ahead);
            ++query;
        } else if (query + 1 < queries.num && sees_first(query + 1)) {
            attend_tile<T, 2>(chunk, queries.part(query, 2), ahead);
            query += 2;
        } else {
            attend_tile<T, 1>(chunk, queries.part(query, 1), ahead);
            ++query;
        }
    }
}

}  // namespace dp
