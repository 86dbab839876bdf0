// Where n-grams of a text stood before: hash chains as LZ77 compressors keep (Deutsch, RFC 1951, section 4).
// The reference is proposers/occurrences.py, whose answers these equal. A position is the index of the token that
// follows an occurrence. Buckets may mix n-grams: whoever walks a chain compares.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dp {

using Token = int32_t;
using Text = std::vector<Token>;

template <class T>
int64_t bytes_of(const std::vector<T>& held) {
    return static_cast<int64_t>(held.capacity() * sizeof(T));
}

// Of n-grams that end at the same token the hash of a longer one goes on from that of a shorter one.
inline uint64_t hash_on(uint64_t hash, Token token) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

inline uint64_t hash_of(const Token* end, int size) {
    uint64_t hash = 0;
    for (int back = 1; back <= size; ++back) hash = hash_on(hash, end[-back]);
    return hash;
}

inline bool equal(const Token* one_end, const Token* other_end, int size) {
    return std::equal(one_end - size, one_end, other_end - size);
}

// How many tokens before text[end] equal those before other[other_end], at most `cap`.
inline int64_t agreement(const Text& text, int64_t end, const Text& other, int64_t other_end, int64_t other_front,
                         int64_t cap) {
    const int64_t most = std::min({cap, end, other_end - other_front});
    int64_t length = 0;
    while (length < most && text[end - 1 - length] == other[other_end - 1 - length]) ++length;
    return length;
}

class Occurrences {
public:
    explicit Occurrences(std::vector<int> sizes) : sizes_(std::move(sizes)), chains_(sizes_.size()) {
        std::sort(sizes_.begin(), sizes_.end());
    }

    // Indexes what `text` gained; an n-gram once a token follows it, so the end of the text never finds itself.
    void extend(const Text& text) {
        const int64_t stop = static_cast<int64_t>(text.size());
        if (stop <= num_indexed_) return;
        make_room(text, stop);
        for (int64_t position = num_indexed_; position < stop; ++position) link(text, position);
        num_indexed_ = stop;
    }

    // Calls visit(position) for places that followed the n-gram before `end`, newest first, until it returns false.
    template <class Visit>
    void followers(const Text& text, int size, const Token* end, Visit visit) const {
        const auto place = std::lower_bound(sizes_.begin(), sizes_.end(), size) - sizes_.begin();
        const Chains& chains = chains_[place];
        if (chains.latest.empty()) return;
        for (int32_t position = chains.latest[hash_of(end, size) >> shift_]; position - size >= front_;
             position = chains.previous[position]) {
            if (equal(text.data() + position, end, size) && !visit(static_cast<int64_t>(position))) return;
        }
    }

    // N-grams that touch a token before `front` are found no more.
    void forget(int64_t front) { front_ = front; }

    // The text lost its first `front` tokens.
    void renumber() {
        const auto front = static_cast<int32_t>(front_);
        for (Chains& chains : chains_) {
            chains.previous.erase(chains.previous.begin(), chains.previous.begin() + front);
            for (auto* numbers : {&chains.latest, &chains.previous})
                for (int32_t& position : *numbers) position = position < front ? NONE : position - front;
        }
        num_indexed_ -= front;
        front_ = 0;
    }

    void clear() {
        chains_.assign(sizes_.size(), {});
        num_indexed_ = front_ = 0;
    }

    int64_t num_bytes() const {
        int64_t total = 0;
        for (const Chains& chains : chains_) total += bytes_of(chains.latest) + bytes_of(chains.previous);
        return total;
    }

private:
    static constexpr int32_t NONE = INT32_MIN / 2;  // before every front, whatever the size

    struct Chains {
        std::vector<int32_t> latest;    // by bucket
        std::vector<int32_t> previous;  // by position
    };

    void make_room(const Text& text, int64_t stop) {
        for (Chains& chains : chains_) chains.previous.resize(stop, NONE);
        int64_t num_buckets = static_cast<int64_t>(chains_.empty() ? 0 : chains_[0].latest.size());
        if (stop <= num_buckets) return;
        num_buckets = std::max<int64_t>(num_buckets, 64);
        while (num_buckets < stop) num_buckets *= 2;
        shift_ = 64 - __builtin_ctzll(num_buckets);
        for (Chains& chains : chains_) chains.latest.assign(num_buckets, NONE);
        for (int64_t position = front_; position < num_indexed_; ++position) link(text, position);
    }

    void link(const Text& text, int64_t position) {
        uint64_t hash = 0;
        int hashed = 0;
        for (size_t place = 0; place < sizes_.size() && sizes_[place] <= position; ++place) {
            while (hashed < sizes_[place]) hash = hash_on(hash, text[position - ++hashed]);
            int32_t& latest = chains_[place].latest[hash >> shift_];
            chains_[place].previous[position] = latest;
            latest = static_cast<int32_t>(position);
        }
    }

    std::vector<int> sizes_;
    std::vector<Chains> chains_;
    int shift_ = 58;
    int64_t num_indexed_ = 0;
    int64_t front_ = 0;
};

// Every place of each n-gram of a text that does not change, ascending; the end of the text is one, too.
class Places {
public:
    void build(const Text& text, int size) {
        size_ = size;
        const auto stop = static_cast<int64_t>(text.size());
        int64_t num_buckets = 16;
        while (num_buckets < stop) num_buckets *= 2;
        shift_ = 64 - __builtin_ctzll(num_buckets);
        starts_.assign(num_buckets + 1, 0);
        positions_.resize(std::max<int64_t>(0, stop - size + 1));
        for (int64_t position = size; position <= stop; ++position) ++starts_[bucket(text, position) + 1];
        for (int64_t at = 0; at < num_buckets; ++at) starts_[at + 1] += starts_[at];
        std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
        for (int64_t position = size; position <= stop; ++position)
            positions_[next[bucket(text, position)]++] = static_cast<int32_t>(position);
    }

    // The first place behind `anchor` where the n-gram before `end` stood, else -1.
    int64_t behind(const Text& text, const Token* end, int64_t anchor) const {
        const auto [first, last] = range(end);
        for (auto at = std::upper_bound(first, last, anchor); at != last; ++at)
            if (equal(text.data() + *at, end, size_)) return *at;
        return -1;
    }

    // The last place not behind `anchor`, else -1.
    int64_t until(const Text& text, const Token* end, int64_t anchor) const {
        const auto [first, last] = range(end);
        for (auto at = std::upper_bound(first, last, anchor); at != first;)
            if (equal(text.data() + *--at, end, size_)) return *at;
        return -1;
    }

    int64_t num_bytes() const { return bytes_of(starts_) + bytes_of(positions_); }

private:
    uint64_t bucket(const Text& text, int64_t position) const {
        return hash_of(text.data() + position, size_) >> shift_;
    }

    std::pair<const int32_t*, const int32_t*> range(const Token* end) const {
        const uint64_t at = hash_of(end, size_) >> shift_;
        return {positions_.data() + starts_[at], positions_.data() + starts_[at + 1]};
    }

    int size_ = 0;
    int shift_ = 0;
    std::vector<int32_t> starts_;  // by bucket
    std::vector<int32_t> positions_;
};

}  // namespace dp
