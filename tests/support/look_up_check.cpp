// Look-up without Python where each piece of memory in turn is refused: its callers then tell it texts from the start.
// Status 1: a call without memory did not say so, or nothing is drafted. Meant for sanitizers, which see the rest.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "look_up.cpp"

namespace {

long left = -1;  // pieces until one is refused; below 0: none is
bool is_in_call = false, was_refused = false, is_good = true;

}  // namespace

void* operator new(size_t size) {
    if (is_in_call && left >= 0 && left-- == 0) was_refused = true, throw std::bad_alloc();
    if (void* memory = std::malloc(size ? size : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

constexpr int DEPTH = 8;
constexpr int64_t NONE = -1;

// Calls the library; whether it had its memory. `refused` is what it says where it had none.
template <class T, class Call>
bool had(T refused, T& said, Call call) {
    is_in_call = true, was_refused = false;
    said = call();
    is_in_call = false;
    if ((said == refused) != was_refused) is_good = false;
    return !was_refused;
}

struct Caller {
    int64_t id;
    std::vector<int32_t> text;
    size_t num_read = 0;
};

dp::LookUp* made() {
    const dp::Part parts[] = {{dp::Part::PREDICTED, DEPTH, 0, 32, 0, 0, 0, 0.0, 0.0, 64, 3, 4},
                              {dp::Part::SUFFIX, DEPTH, 16, 24, 3, 300, 90, 2.0, 0.1, 0, 0, 0},
                              {dp::Part::NGRAM, DEPTH, 16, 32, 0, 0, 0, 0.0, 0.0, 0, 0, 0}};
    const int32_t sizes[] = {1, 2, 3, 4, 1, 2, 4, 8, 1, 2, 3, 4, 5}, num_sizes[] = {4, 4, 5};
    dp::Prior prior{{}, 6.0, 0.97};
    prior.agreement.fill(0.9);
    return dp_look_up_new(parts, 3, sizes, num_sizes, &prior);
}

// As LookUpProposer does it. Returns how many tokens were drafted.
int64_t tell(dp::LookUp* look_up, std::vector<Caller>& callers, bool drafts) {
    static const double prices[DEPTH + 1] = {};
    std::vector<int32_t> message, out(callers.size() * (DEPTH + 1));
    std::vector<double> all_prices;
    for (Caller& caller : callers) {
        const auto at = static_cast<int32_t>(caller.num_read), num = static_cast<int32_t>(caller.text.size()) - at;
        message.insert(message.end(), {static_cast<int32_t>(caller.id), at, num, DEPTH, drafts ? DEPTH + 1 : 0});
        message.insert(message.end(), caller.text.begin() + at, caller.text.end());
        all_prices.insert(all_prices.end(), prices, prices + DEPTH + 1);
    }
    const auto num = static_cast<int32_t>(callers.size());
    int64_t said;
    const bool is_told = had(NONE, said, [&] {
        return drafts ? dp_look_up_draft(look_up, message.data(), num, all_prices.data(), out.data())
                      : dp_look_up_commit(look_up, message.data(), num);
    });
    for (Caller& caller : callers) caller.num_read = is_told ? caller.text.size() : 0;
    return is_told && drafts ? said : 0;
}

int64_t run() {
    int64_t num_drafted = 0;
    dp::LookUp* look_up;
    if (!had<dp::LookUp*>(nullptr, look_up, made)) return 0;
    int64_t said;
    for (int wave = 0; wave < 4; ++wave) {
        std::vector<Caller> callers;
        for (int one = 0; one < 3; ++one) {
            std::vector<int32_t> text;
            for (int at = 0; at < 40 + 30 * one; ++at) text.push_back(at * at % (7 + one));
            const auto begin = [&] {
                return dp_look_up_begin(look_up, "scope", one ? 5 : 0, 4, text.data(), one == 2 ? 70 : 0);
            };
            if (had(NONE, said, begin)) callers.push_back({said, text});
        }
        for (int round = 0; round < 4; ++round) {
            num_drafted += tell(look_up, callers, true);
            for (Caller& caller : callers)
                for (int token = 0; token < 60; ++token) caller.text.push_back(caller.text[caller.text.size() - 7]);
            tell(look_up, callers, false);
        }
        for (const Caller& caller : callers)
            had(NONE, said, [&] {
                const auto id = static_cast<int32_t>(caller.id);
                return dp_look_up_end(look_up, id, caller.text.data(), static_cast<int64_t>(caller.text.size()));
            });
    }
    dp_look_up_free(look_up);
    return num_drafted;
}

}  // namespace

int main() {
    const int64_t num_drafted = run();
    if (num_drafted < 100) is_good = false;
    bool reached = true;
    for (long at = 0; reached; ++at) {
        left = at;
        run();
        reached = left < 0;
        left = -1;
    }
    return is_good ? 0 : 1;
}
