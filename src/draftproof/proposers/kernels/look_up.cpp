// The C interface: look-up for all requests of a round in one call. Used by proposers/look_up.py through ctypes.
#include <cstring>
#include <new>

#include "parts.h"

namespace dp {

// What a call says of one request, in int32: these fields, then `num_tokens` tokens of its text from `at` on.
struct Asked {
    int32_t id, at, num_tokens;
    int32_t limit;       // most tokens of its draft
    int32_t num_prices;  // of it in the array of prices
};

class LookUp {
public:
    LookUp(const Part* parts, int num_parts, const std::vector<std::vector<int>>& sizes, const Prior& prior)
        : parts_(parts, num_parts, sizes), prior_(prior) {}

    int32_t begin(const char* scope, int64_t scope_length, int32_t num_prompt, const Token* prediction,
                  int64_t num_predicted) {
        auto request = std::make_unique<Request>(std::string(scope, scope_length), num_prompt,
                                                 parts_.indexed_sizes(), parts_.size(), prior_);
        if (num_predicted > 0) parts_.expect(*request, prediction, num_predicted);
        if (free_.empty()) {
            free_.reserve(requests_.size() + 1);  // so that `end` cannot fail
            requests_.push_back(nullptr);
            free_.push_back(static_cast<int32_t>(requests_.size()) - 1);
        }
        const int32_t id = free_.back();
        free_.pop_back();
        requests_[id] = std::move(request);
        return id;
    }

    int64_t draft(const int32_t* message, int num_requests, const double* prices, int32_t* out) {
        int64_t total = 0;
        for (int each = 0; each < num_requests; ++each) {
            const Asked asked = read(message);
            int64_t num_tokens = 0;
            const Token* tokens =
                parts_.draft(*requests_[asked.id], asked.limit, {prices, asked.num_prices}, num_tokens);
            *out++ = static_cast<int32_t>(num_tokens);
            out = std::copy(tokens, tokens + num_tokens, out);
            prices += asked.num_prices;
            total += num_tokens;
        }
        return total;
    }

    void commit(const int32_t* message, int num_requests) {
        for (int each = 0; each < num_requests; ++each) parts_.learn(*requests_[read(message).id]);
    }

    void end(int32_t id, const Token* output, int64_t num_tokens) {
        const std::unique_ptr<Request> request = std::move(requests_[id]);
        free_.push_back(id);
        parts_.remember(request->scope, output, num_tokens);
    }

    int64_t num_bytes() const {
        int64_t total = parts_.num_bytes();
        for (const auto& request : requests_) total += request ? request->num_bytes() : 0;
        return total;
    }

    int64_t num_pool_bytes() const { return parts_.num_bytes(); }

    void shrink_pools(int64_t most) { parts_.shrink(most); }

private:
    // Takes one request's part of a message.
    Asked read(const int32_t*& message) {
        Asked asked;
        std::memcpy(&asked, message, sizeof asked);
        const int32_t* tokens = message + sizeof(Asked) / sizeof(int32_t);
        parts_.read(*requests_[asked.id], asked.at, tokens, asked.num_tokens);
        message = tokens + asked.num_tokens;
        return asked;
    }

    Parts parts_;
    Prior prior_;
    std::vector<std::unique_ptr<Request>> requests_;  // by id
    std::vector<int32_t> free_;
};

}  // namespace dp

namespace {

constexpr int64_t OUT_OF_MEMORY = -1;

template <class Call>
int64_t guarded(Call call) {
    try {
        return call();
    } catch (const std::bad_alloc&) {
        return OUT_OF_MEMORY;
    }
}

}  // namespace

extern "C" {

// `sizes` are the n-gram sizes of all parts one after the other, `num_sizes` of each; nullptr without memory.
dp::LookUp* dp_look_up_new(const dp::Part* parts, int32_t num_parts, const int32_t* sizes, const int32_t* num_sizes,
                           const dp::Prior* prior) {
    try {
        std::vector<std::vector<int>> by_part;
        for (int32_t part = 0; part < num_parts; sizes += num_sizes[part++])
            by_part.emplace_back(sizes, sizes + num_sizes[part]);
        return new dp::LookUp(parts, num_parts, by_part, *prior);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void dp_look_up_free(dp::LookUp* look_up) { delete look_up; }

// The request's id.
int64_t dp_look_up_begin(dp::LookUp* look_up, const char* scope, int64_t scope_length, int32_t num_prompt,
                         const int32_t* prediction, int64_t num_predicted) {
    return guarded([&] { return look_up->begin(scope, scope_length, num_prompt, prediction, num_predicted); });
}

// Writes for each request how many tokens are drafted and which; returns how many there are in all.
int64_t dp_look_up_draft(dp::LookUp* look_up, const int32_t* message, int32_t num_requests, const double* prices,
                         int32_t* out) {
    return guarded([&] { return look_up->draft(message, num_requests, prices, out); });
}

// The text that came since the last draft tells what the guesses were good for.
int64_t dp_look_up_commit(dp::LookUp* look_up, const int32_t* message, int32_t num_requests) {
    return guarded([&] { return look_up->commit(message, num_requests), int64_t{0}; });
}

// Forgets the request, also where its output cannot be remembered for want of memory.
int64_t dp_look_up_end(dp::LookUp* look_up, int32_t id, const int32_t* output, int64_t num_tokens) {
    return guarded([&] { return look_up->end(id, output, num_tokens), int64_t{0}; });
}

int64_t dp_look_up_num_bytes(const dp::LookUp* look_up) { return look_up->num_bytes(); }

int64_t dp_look_up_num_pool_bytes(const dp::LookUp* look_up) { return look_up->num_pool_bytes(); }

// Forgets outputs until the pools hold at most `most` bytes.
void dp_look_up_shrink_pools(dp::LookUp* look_up, int64_t most) { look_up->shrink_pools(most); }
}
