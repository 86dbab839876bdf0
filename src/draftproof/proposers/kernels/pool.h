// Earlier outputs by scope; the reference is proposers/pool.py, which says what is bounded how.
#pragma once

#include <deque>
#include <list>
#include <new>
#include <numeric>
#include <string>
#include <unordered_map>

#include "occurrences.h"

namespace dp {

constexpr Token END_OF_OUTPUT = INT32_MIN;  // no token id

// The remembered outputs of one scope, one text. Tokens before `front` are forgotten.
struct Pool {
    explicit Pool(const std::vector<int>& sizes) : index(sizes) {}

    void remember(const Token* output, int64_t num_tokens) {
        text.reserve(text.size() + num_tokens + 1);
        text.insert(text.end(), output, output + num_tokens);
        text.push_back(END_OF_OUTPUT);
        index.extend(text);
        lengths.push_back(num_tokens + 1);
    }

    int64_t forget_oldest() {
        const int64_t num_tokens = lengths.front();
        lengths.pop_front();
        front += num_tokens;
        index.forget(front);
        if (2 * front >= static_cast<int64_t>(text.size())) {  // now and then, for it moves all that is left
            text.erase(text.begin(), text.begin() + front);
            index.renumber();
            front = 0;
        }
        return num_tokens;
    }

    int64_t num_tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

    int64_t num_bytes() const {
        return bytes_of(text) + index.num_bytes() + static_cast<int64_t>(lengths.size() * sizeof(int64_t));
    }

    Text text;
    int64_t front = 0;
    Occurrences index;
    std::deque<int64_t> lengths;
};

class Pools {
public:
    Pools(std::vector<int> sizes, int64_t max_outputs, int64_t max_tokens, int64_t max_output_tokens)
        : sizes_(std::move(sizes)),
          max_outputs_(max_outputs),
          max_tokens_(max_tokens),
          max_output_tokens_(std::min(max_output_tokens, max_tokens - 1)) {}

    // The scope's pool, which counts as used now; nullptr if nothing is remembered for it.
    const Pool* get(const std::string& scope) {
        const auto found = by_scope_.find(scope);
        if (found == by_scope_.end()) return nullptr;
        by_use_.splice(by_use_.end(), by_use_, found->second);
        return &found->second->second;
    }

    void remember(const std::string& scope, const Token* output, int64_t num_tokens) {
        if (num_tokens > max_output_tokens_) {
            output += num_tokens - max_output_tokens_;
            num_tokens = max_output_tokens_;
        }
        if (num_tokens < 1 || max_outputs_ < 1) return;
        const bool is_known = get(scope) != nullptr;
        if (!is_known) by_use_.emplace_back(scope, Pool(sizes_));
        const auto newest = std::prev(by_use_.end());
        try {
            if (!is_known) by_scope_.emplace(scope, newest);
            newest->second.remember(output, num_tokens);
        } catch (const std::bad_alloc&) {  // half of it may be there
            num_outputs_ -= newest->second.lengths.size();
            for (const int64_t length : newest->second.lengths) num_tokens_ -= length;
            forget(newest);
            throw;
        }
        ++num_outputs_;
        num_tokens_ += num_tokens + 1;
        while (num_outputs_ > max_outputs_ || num_tokens_ > max_tokens_) forget_oldest();
    }

    int64_t num_bytes() const {
        int64_t total = 0;
        for (const auto& each : by_use_) total += bytes_of(each);
        return total;
    }

    // Forgets outputs until at most `most` bytes are held: all of the scopes that were used longest ago, of the last
    // one half by half.
    void shrink(int64_t most) {
        int64_t total = num_bytes();
        while (total > most) {
            const auto oldest = by_use_.begin();
            total -= bytes_of(*oldest);
            Pool left(sizes_);
            if (by_use_.size() == 1) left = newer_half(oldest->second);
            num_outputs_ -= oldest->second.lengths.size() - left.lengths.size();
            num_tokens_ -= oldest->second.num_tokens() - left.num_tokens();
            if (left.lengths.empty()) {
                forget(oldest);
                continue;
            }
            oldest->second = std::move(left);
            total += bytes_of(*oldest);
        }
    }

private:
    using ByUse = std::list<std::pair<std::string, Pool>>;

    static int64_t bytes_of(const std::pair<std::string, Pool>& scope) {
        return 2 * static_cast<int64_t>(scope.first.capacity()) + scope.second.num_bytes();
    }

    // Without room for it, nothing.
    Pool newer_half(const Pool& pool) const {
        Pool half(sizes_);
        try {
            half.lengths.assign(pool.lengths.end() - pool.lengths.size() / 2, pool.lengths.end());
            half.text.assign(pool.text.end() - half.num_tokens(), pool.text.end());
            half.index.extend(half.text);
            return half;
        } catch (const std::bad_alloc&) {
            return Pool(sizes_);
        }
    }

    void forget_oldest() {
        Pool& pool = by_use_.front().second;
        num_tokens_ -= pool.forget_oldest();
        --num_outputs_;
        if (pool.lengths.empty()) forget(by_use_.begin());
    }

    void forget(ByUse::iterator scope) {
        by_scope_.erase(scope->first);
        by_use_.erase(scope);
    }

    std::vector<int> sizes_;
    int64_t max_outputs_, max_tokens_, max_output_tokens_;
    int64_t num_outputs_ = 0, num_tokens_ = 0;
    ByUse by_use_;  // the one that was used longest ago first
    std::unordered_map<std::string, ByUse::iterator> by_scope_;
};

}  // namespace dp
