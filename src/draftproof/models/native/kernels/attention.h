// Attention of rows over the paged cache, and the rotary embedding before it.
//
// The numbers promised for one query, whatever shares the pass with it: its visible keys are taken in order, in
// chunks of CHUNK keys counted from the sequence's first token. A score is two chains of fused multiply-adds, one over
// the even and one over the odd elements, added. Per chunk the running maximum, sum and output are rescaled (the online
// softmax of Milakov & Gimelshein, 2018; a weight below e^-64 of the largest so far is zero): weights of keys 16 apart
// are added, then those 8 apart, then the eight by `sum_lanes`; then the chunk's values are added key by key, each with
// one fma. A path in a tree is taken in the same chunks as the same tokens in a chain, so it gets the same bits.
//
// Keys lie word by word, so that a vector holds as many keys as it has lanes and no lanes ever meet: a word of 32 bits is
// one float32 element of a key or two bfloat16 elements, and a block is [head_dim / elements of a word][BLOCK] words.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "memory.h"
#include "simd.h"

namespace dp {

constexpr int BLOCK = DP_BLOCK_SIZE;  // tokens of a cache block
constexpr int CHUNK = BLOCK;          // keys between two rescalings: with the next ones they fit the nearest cache
static_assert(CHUNK == 4 * LANES, "the softmax of a chunk is written for four vectors of eight");
constexpr int QUERY_TILE = 12;        // queries that share the keys of one cache head at a time

// The cache of all layers: [num_blocks][num_layers][2][num_kv_heads], keys first, and of each the block of a head:
// keys as above, values [BLOCK][head_dim].
template <class T> struct Cache {
    T* data;
    int num_layers, num_kv_heads, head_dim;

    T* keys(int layer, int64_t block, int kv_head) const {
        return data + ((block * num_layers + layer) * 2 * num_kv_heads + kv_head) * BLOCK * head_dim;
    }
    T* values(int layer, int64_t block, int kv_head) const { return keys(layer, block, kv_head + num_kv_heads); }
};

// Where element d of a key lies in its block.
template <class T> inline int key_index(int d, int key) {
    constexpr int IN_WORD = 4 / sizeof(T);
    return (d / IN_WORD * BLOCK + key) * IN_WORD + d % IN_WORD;
}

// Writes a key, [head_dim] in its natural order, to its place in a block.
template <class T> inline void put_key(const T* key, T* block, int offset, int head_dim) {
    for (int d = 0; d < head_dim; d += 4 / int(sizeof(T))) std::memcpy(block + key_index<T>(d, offset), key + d, 4);
}

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

// The keys and values of one chunk of a cache head, laid out as in a block.
template <class T> struct Chunk {
    const T *keys, *values;
    int first;
};

// Queries of one cache head with the running state of their softmax.
struct Queries {
    float* q;        // [head_dim][stride], rotated and scaled
    float* out;      // [num][head_dim], in the order of load_span
    float* scores;   // [num][CHUNK]
    float* maximum;  // [num]
    float* sum;      // [num]
    int* visible;    // [num] keys up to the last one that a query sees, counted from the sequence's first token
    int* start;      // [num] the first key that it sees
    int num, head_dim, stride;

    static constexpr int SPARE = 6;  // tiles may compute queries that are not there

    static int stride_of(int num) { return num + SPARE; }
    static size_t floats(int num, int head_dim) {
        return size_t(stride_of(num)) * (2 * head_dim + CHUNK + 4);
    }

    Queries(float* memory, int num, int head_dim)
        : q(memory), num(num), head_dim(head_dim), stride(stride_of(num)) {
        out = q + stride * head_dim, scores = out + stride * head_dim, maximum = scores + stride * CHUNK;
        sum = maximum + stride;
        visible = reinterpret_cast<int*>(sum + stride), start = visible + stride;
    }

    Queries part(int first, int count) const {
        Queries sub = *this;
        sub.q += first, sub.out += first * head_dim, sub.scores += first * CHUNK;
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
    bool all_see(int first, int last) const {
        for (int query = 0; query < num; ++query)
            if (start[query] > first || visible[query] < last) return false;
        return true;
    }
};

// A tile of scores has SCORE_QUERIES queries at most and SCORE_VECTORS of keys, one of outputs OUTPUT_QUERIES: so many
// sums fit the registers.
constexpr int SCORE_QUERIES = WIDE == 16 ? 6 : 3, SCORE_VECTORS = WIDE == 4 ? 4 : 2, OUTPUT_QUERIES = WIDE == 8 ? 3 : 6;
constexpr int SCORE_KEYS = SCORE_VECTORS * WIDE;
static_assert(CHUNK % SCORE_KEYS == 0, "tiles cover a chunk");

// Elements 2 * pair and 2 * pair + 1 of WIDE keys.
inline void load_pair(const bf16* keys, int pair, int key, vecw& even, vecw& odd) {
    load_span(keys + 2 * (pair * BLOCK + key), even, odd);
}
inline void load_pair(const float* keys, int pair, int key, vecw& even, vecw& odd) {
    even = load<vecw>(keys + 2 * pair * BLOCK + key), odd = load<vecw>(keys + (2 * pair + 1) * BLOCK + key);
}

// Asks memory for what load_pair reads of a tile.
inline void ask_for_pair(const bf16* keys, int pair, int key) {
    for (int byte = 0; byte < 4 * SCORE_KEYS; byte += int(LINE_BYTES))
        __builtin_prefetch(reinterpret_cast<const char*>(keys + 2 * (pair * BLOCK + key)) + byte);
}
inline void ask_for_pair(const float* keys, int pair, int key) {
    for (int byte = 0; byte < 4 * SCORE_KEYS; byte += int(LINE_BYTES)) {
        __builtin_prefetch(reinterpret_cast<const char*>(keys + 2 * pair * BLOCK + key) + byte);
        __builtin_prefetch(reinterpret_cast<const char*>(keys + (2 * pair + 1) * BLOCK + key) + byte);
    }
}

// `next` is asked from memory meanwhile: a line at a time, for many requests at once would fill the processor's queue of
// misses, and then it stands still.
template <class T, int Q>
inline void score_tile(const T* keys, const Queries& queries, float* scores, int first_key, const T* next) {
    vecw even[Q][SCORE_VECTORS], odd[Q][SCORE_VECTORS];
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < SCORE_VECTORS; ++part) even[query][part] = odd[query][part] = vecw{};
    const float* q = queries.q;
    for (int pair = 0; pair < queries.head_dim / 2; ++pair, q += 2 * queries.stride) {
        ask_for_pair(next, pair, first_key);
#pragma GCC unroll 16
        for (int part = 0; part < SCORE_VECTORS; ++part) {
            vecw first, second;
            load_pair(keys, pair, first_key + part * WIDE, first, second);
#pragma GCC unroll 16
            for (int query = 0; query < Q; ++query) {
                even[query][part] = fma(splat<vecw>(q[query]), first, even[query][part]);
                odd[query][part] = fma(splat<vecw>(q[queries.stride + query]), second, odd[query][part]);
            }
        }
    }
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int part = 0; part < SCORE_VECTORS; ++part)
            store(scores + query * CHUNK + first_key + part * WIDE, even[query][part] + odd[query][part]);
}

// Scores of all queries and all keys of a chunk, seen or not.
template <class T> inline void score_all(const Chunk<T>& chunk, const Queries& queries, const T* next) {
    for (int query = 0; query < queries.num; query += SCORE_QUERIES) {
        const Queries rest = queries.part(query, queries.num - query);
        const T* ahead = query == 0 ? next : chunk.keys;
        for (int key = 0; key < CHUNK; key += SCORE_KEYS) switch (rest.num) {
                case 1: score_tile<T, 1>(chunk.keys, rest, rest.scores, key, ahead); break;
                case 2: score_tile<T, 2>(chunk.keys, rest, rest.scores, key, ahead); break;
                case 3: score_tile<T, 3>(chunk.keys, rest, rest.scores, key, ahead); break;
                default: score_tile<T, SCORE_QUERIES>(chunk.keys, rest, rest.scores, key, ahead);
            }
    }
}

// exp(x) of a score less the maximum, and zero where that is too little to count: products of numbers near the smallest
// are slow on many processors, tens of cycles each.
constexpr float COUNTS_FROM = -64.0f;

template <class V> inline V weight_of(V x) { return x < splat<V>(COUNTS_FROM) ? V{} : exp_of(x); }

// What a chunk does to the softmax of a query that sees its keys from..to: scores become weights, those of other keys
// zero; maximum and sum are updated. Returns the factor by which what was summed before must shrink.
inline float softmax_step(float* scores, int from, int to, float& maximum, float& sum) {
    constexpr float NOTHING = -std::numeric_limits<float>::infinity();
    for (int key = 0; key < from; ++key) scores[key] = NOTHING;
    for (int key = to; key < CHUNK; ++key) scores[key] = NOTHING;
    const auto larger = [](vec8 a, vec8 b) { return b > a ? b : a; };
    const float best = max_lanes(larger(larger(load<vec8>(scores), load<vec8>(scores + 2 * LANES)),
                                        larger(load<vec8>(scores + LANES), load<vec8>(scores + 3 * LANES))));
    const float old_maximum = maximum;
    if (best > maximum) maximum = best;
    const vecw top = splat<vecw>(maximum);
#pragma GCC unroll 8
    for (int key = 0; key < CHUNK; key += WIDE) store(scores + key, weight_of(load<vecw>(scores + key) - top));
    const vec8 total = (load<vec8>(scores) + load<vec8>(scores + 2 * LANES)) +
                       (load<vec8>(scores + LANES) + load<vec8>(scores + 3 * LANES));
    const float factor = maximum == old_maximum ? 1.0f : weight_of(splat<vec8>(old_maximum - maximum))[0];
    sum = fma(sum, factor, sum_lanes(total));
    return factor;
}

// An output lies in spans of two vectors: as many as fit of the widest, then of eight lanes.
constexpr int WIDE_SPAN = 2 * WIDE;

// Calls work(d, size) for every span.
template <class Work> inline void for_spans(int head_dim, Work work) {
    int d = 0;
    for (; d + WIDE_SPAN <= head_dim; d += WIDE_SPAN) work(d, WIDE_SPAN);
    for (; d < head_dim; d += 2 * LANES) work(d, 2 * LANES);
}

// Adds the values of keys from..to, times the queries' weights, to S spans of the outputs from element d on; a span is
// two vectors V. `next` as above.
template <class V, class T, int Q, int S>
inline void add_values(const T* values, const Queries& queries, const float* factors, int from, int to, int d,
                       const T* next) {
    constexpr int SPAN = 2 * sizeof(V) / 4;
    const int hd = queries.head_dim;
    V first[Q][S], second[Q][S];
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int span = 0; span < S; ++span) {
            const float* out = queries.out + query * hd + d + span * SPAN;
            first[query][span] = load<V>(out) * splat<V>(factors[query]);
            second[query][span] = load<V>(out + SPAN / 2) * splat<V>(factors[query]);
        }
    for (int key = from; key < to; ++key) {
        const T* value = values + key * hd + d;
#pragma GCC unroll 16
        for (size_t byte = 0; byte < S * SPAN * sizeof(T); byte += LINE_BYTES)
            __builtin_prefetch(reinterpret_cast<const char*>(next + key * hd + d) + byte);
#pragma GCC unroll 16
        for (int span = 0; span < S; ++span) {
            V a, b;
            load_span(value + span * SPAN, a, b);
#pragma GCC unroll 16
            for (int query = 0; query < Q; ++query) {
                const V weight = splat<V>(queries.scores[query * CHUNK + key]);
                first[query][span] = fma(weight, a, first[query][span]);
                second[query][span] = fma(weight, b, second[query][span]);
            }
        }
    }
#pragma GCC unroll 16
    for (int query = 0; query < Q; ++query)
#pragma GCC unroll 16
        for (int span = 0; span < S; ++span) {
            float* out = queries.out + query * hd + d + span * SPAN;
            store(out, first[query][span]), store(out + SPAN / 2, second[query][span]);
        }
}

template <class T, int Q>
inline void add_all_values(const T* values, const Queries& queries, const float* factors, int from, int to,
                           const T* next) {
    constexpr int MANY = Q <= 2 && WIDE != 8 ? 4 : 2;
    int d = 0;
    for (; d + MANY * WIDE_SPAN <= queries.head_dim; d += MANY * WIDE_SPAN)
        add_values<vecw, T, Q, MANY>(values, queries, factors, from, to, d, next);
    for (; d + WIDE_SPAN <= queries.head_dim; d += WIDE_SPAN)
        add_values<vecw, T, Q, 1>(values, queries, factors, from, to, d, next);
    for (; d < queries.head_dim; d += 2 * LANES)
        add_values<vec8, T, Q, 1>(values, queries, factors, from, to, d, next);
}

// Calls work with Q, the size of the next tile, as a type, until `num` queries are done.
template <class Work> inline void in_tiles(int num, Work work) {
    for (int query = 0; query < num;) {
        const int left = num - query;
        if (left >= OUTPUT_QUERIES) {
            work(query, std::integral_constant<int, OUTPUT_QUERIES>()), query += OUTPUT_QUERIES;
        } else if (left >= 3) {
            work(query, std::integral_constant<int, 3>()), query += 3;
        } else if (left == 2) {
            work(query, std::integral_constant<int, 2>()), query += 2;
        } else {
            work(query, std::integral_constant<int, 1>()), query += 1;
        }
    }
}

// Each query attends to those keys of the chunk that it sees; `next` is the chunk after it, or the same.
template <class T> inline void attend(const Chunk<T>& chunk, const Queries& queries, const Chunk<T>& next) {
    score_all(chunk, queries, next.keys);
    if (queries.all_see(chunk.first, chunk.first + CHUNK)) {
        in_tiles(queries.num, [&](int first, auto count) {
            constexpr int Q = decltype(count)::value;
            const Queries tile = queries.part(first, Q);
            float factors[Q];
            for (int query = 0; query < Q; ++query)
                factors[query] =
                    softmax_step(tile.scores + query * CHUNK, 0, CHUNK, tile.maximum[query], tile.sum[query]);
            add_all_values<T, Q>(chunk.values, tile, factors, 0, CHUNK, first == 0 ? next.values : chunk.values);
        });
        return;
    }
    for (int query = 0; query < queries.num; ++query) {
        const Queries one = queries.part(query, 1);
        const int from = std::max(one.start[0] - chunk.first, 0), to = std::min(one.visible[0] - chunk.first, CHUNK);
        if (from >= to) continue;
        const float factor = softmax_step(one.scores, from, to, one.maximum[0], one.sum[0]);
        add_all_values<T, 1>(chunk.values, one, &factor, from, to, next.values);
    }
}

}  // namespace dp
