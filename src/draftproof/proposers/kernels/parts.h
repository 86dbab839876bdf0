// The three ways of looking up. The references are proposers/ngram.py, suffix.py and predicted.py.
#pragma once

#include <memory>

#include "evidence.h"
#include "pool.h"

namespace dp {

// One part of a look-up as Python fills it in; mirrored by PartStruct in look_up.py.
struct Part {
    enum Kind : int32_t { NGRAM, SUFFIX, PREDICTED };
    int32_t kind;
    int32_t depth;           // most tokens of a draft
    int32_t max_candidates;  // occurrences compared per size and source
    int32_t max_agreement;   // how far back they are compared
    int32_t max_outputs, max_tokens, max_output_tokens;  // suffix: bounds of the pools
    double max_factor, min_share;         // suffix
    int32_t near_tokens, far_size, anchor_length;  // predicted
};

// What was guessed, also where it was too weak to be drafted: the text that comes tells whether it was right.
struct Guess {
    Text tokens;
    int64_t length = 0;  // tokens that agreed where it was made
    int64_t at = 0;      // how many tokens the text had then
};

// A request's cursor in the text that its user expects.
struct Prediction {
    Text text;
    std::vector<int> sizes;  // descending
    std::vector<Places> places;
    int64_t cursor = 0, length = 0, anchor = 0, num_read = 0;
    bool lost = false;

    int64_t num_bytes() const {
        int64_t total = bytes_of(text);
        for (const Places& each : places) total += each.num_bytes();
        return total;
    }
};

struct Request {
    Request(std::string scope, int64_t num_prompt, const std::vector<int>& sizes, int num_parts, const Prior& prior)
        : scope(std::move(scope)),
          num_prompt(num_prompt),
          index(sizes),
          evidence(num_parts, Evidence(prior)),
          guesses(num_parts),
          predictions(num_parts) {}

    int64_t num_bytes() const {
        int64_t total = static_cast<int64_t>(sizeof(Request) + scope.capacity()) + bytes_of(text) + index.num_bytes();
        for (const auto& each : predictions) total += each ? each->num_bytes() : 0;
        return total;
    }

    std::string scope;
    int64_t num_prompt;
    Text text;
    Occurrences index;
    std::vector<Evidence> evidence;  // by part, as the others
    std::vector<Guess> guesses;
    std::vector<std::unique_ptr<Prediction>> predictions;  // none where nothing is expected
};

// `limit` tokens from `position` on; where the text ends the run repeats: a copy that overlaps itself.
inline void continuation(const Text& text, int64_t position, int64_t limit, Text& found) {
    const int64_t period = std::min<int64_t>(limit, static_cast<int64_t>(text.size()) - position);
    found.assign(text.begin() + position, text.begin() + position + period);
    while (static_cast<int64_t>(found.size()) < limit) found.push_back(found[found.size() - period]);
}

class Parts {
public:
    Parts(const Part* parts, int num_parts, const std::vector<std::vector<int>>& sizes)
        : parts_(parts, parts + num_parts), sizes_(sizes) {
        for (int part = 0; part < num_parts; ++part) {
            const Part& each = parts_[part];
            if (each.kind != Part::PREDICTED) all_sizes_.insert(all_sizes_.end(), sizes_[part].begin(), sizes_[part].end());
            const bool has_pool = each.kind == Part::SUFFIX;
            pools_.emplace_back(sizes_[part], has_pool ? each.max_outputs : 0, each.max_tokens, each.max_output_tokens);
        }
        std::sort(all_sizes_.begin(), all_sizes_.end());
        all_sizes_.erase(std::unique(all_sizes_.begin(), all_sizes_.end()), all_sizes_.end());
    }

    int size() const { return static_cast<int>(parts_.size()); }
    const std::vector<int>& indexed_sizes() const { return all_sizes_; }

    void expect(Request& request, const Token* prediction, int64_t num_tokens) const {
        for (int part = 0; part < size(); ++part) {
            if (parts_[part].kind != Part::PREDICTED) continue;
            auto expected = std::make_unique<Prediction>();
            expected->text.assign(prediction, prediction + num_tokens);
            expected->sizes.assign(sizes_[part].rbegin(), sizes_[part].rend());
            for (const int size : expected->sizes) expected->places.emplace_back().build(expected->text, size);
            restart(*expected, request, parts_[part]);
            request.predictions[part] = std::move(expected);
        }
    }

    // The tokens of the request's text from `at` on, of which it may have been told the beginning already. At 0 the
    // text begins anew.
    void read(Request& request, int64_t at, const Token* tokens, int64_t num_tokens) const {
        if (at == 0 && !request.text.empty()) {
            request.text.clear();
            request.index.clear();
            for (int part = 0; part < size(); ++part) {
                request.guesses[part].tokens.clear();
                if (request.predictions[part]) restart(*request.predictions[part], request, parts_[part]);
            }
        }
        request.text.insert(request.text.end(), tokens, tokens + num_tokens);
    }

    // The draft of the first part that has one, at most `limit` tokens.
    const Token* draft(Request& request, int64_t limit, Prices prices, int64_t& num_tokens) {
        for (int part = 0; part < size(); ++part) {
            Guess& guess = request.guesses[part];
            guess.tokens.clear();
            shares_.clear();
            const int64_t most = std::min<int64_t>(limit, parts_[part].depth);
            const bool found = parts_[part].kind == Part::NGRAM    ? guess_ngram(request, part, most)
                               : parts_[part].kind == Part::SUFFIX ? guess_suffix(request, part, most)
                                                                   : guess_predicted(request, part, most);
            if (!found) continue;
            guess.at = static_cast<int64_t>(request.text.size());
            const Evidence& evidence = request.evidence[part];
            const auto num_guessed = static_cast<int64_t>(guess.tokens.size());
            num_tokens = evidence.num_worth(guess.length, num_guessed, prices, shares_);
            if (num_tokens > 0) return guess.tokens.data();
        }
        num_tokens = 0;
        return nullptr;
    }

    void learn(Request& request) const {
        for (int part = 0; part < size(); ++part) {
            Guess& guess = request.guesses[part];
            if (guess.tokens.empty()) continue;
            const auto num_came = static_cast<int64_t>(request.text.size()) - guess.at;
            request.evidence[part].learn(guess.length, guess.tokens, request.text.data() + guess.at, num_came);
            guess.tokens.clear();
        }
    }

    void remember(const std::string& scope, const Token* output, int64_t num_tokens) {
        for (Pools& pools : pools_) pools.remember(scope, output, num_tokens);
    }

    int64_t num_bytes() const {
        int64_t total = 0;
        for (const Pools& pools : pools_) total += pools.num_bytes();
        return total;
    }

    void shrink(int64_t most) {
        for (Pools& pools : pools_) pools.shrink(most / size());
    }

private:
    struct Voter {
        const Text* text;
        int64_t start;
        bool is_own;
    };

    static void restart(Prediction& prediction, const Request& request, const Part& part) {
        prediction.cursor = prediction.anchor = 0;
        prediction.length = part.max_agreement;
        prediction.num_read = request.num_prompt;
        prediction.lost = false;
    }

    bool guess_ngram(Request& request, int part, int64_t limit) const {
        const Part& with = parts_[part];
        const Text& text = request.text;
        const auto end = static_cast<int64_t>(text.size());
        request.index.extend(text);
        for (auto size = sizes_[part].rbegin(); size != sizes_[part].rend(); ++size) {
            if (*size >= end) continue;
            int64_t best = -1, best_length = -1;
            int num_seen = 0;
            request.index.followers(text, *size, text.data() + end, [&](int64_t position) {
                const int64_t length = agreement(text, end, text, position, 0, with.max_agreement);
                if (length > best_length) best = position, best_length = length;
                return ++num_seen < with.max_candidates && length < with.max_agreement;
            });
            if (best < 0) continue;
            continuation(text, best, limit, request.guesses[part].tokens);
            request.guesses[part].length = best_length;
            return true;
        }
        return false;
    }

    bool guess_suffix(Request& request, int part, int64_t limit) {
        const Part& with = parts_[part];
        request.index.extend(request.text);
        const int64_t length = find_voters(request, part);
        if (voters_.empty()) return false;
        Guess& guess = request.guesses[part];
        guess.length = length;
        limit = std::min(limit, static_cast<int64_t>(static_cast<double>(length) * with.max_factor));
        take_majority(request.text, limit, with.min_share, guess.tokens);
        return true;
    }

    // Fills `voters_` with the occurrences that agree furthest back, newest first, the request's own before the
    // pool's; returns how far.
    int64_t find_voters(const Request& request, int part) {
        const Part& with = parts_[part];
        const Text& text = request.text;
        const auto end = static_cast<int64_t>(text.size());
        const Pool* pool = pools_[part].get(request.scope);
        int64_t best = -1;
        voters_.clear();
        for (auto size = sizes_[part].rbegin(); size != sizes_[part].rend() && voters_.empty(); ++size) {
            if (*size > end) continue;
            int num_seen = 0;
            const auto look_into = [&](const Text& other, const Occurrences& index, int64_t front, bool is_own) {
                num_seen = 0;
                index.followers(other, *size, text.data() + end, [&](int64_t position) {
                    if (other[position] != END_OF_OUTPUT || is_own) {
                        const int64_t length = agreement(text, end, other, position, front, with.max_agreement);
                        if (length > best) {
                            voters_.clear();
                            best = length;
                        }
                        if (length == best) voters_.push_back({&other, position, is_own});
                    }
                    return ++num_seen < with.max_candidates;
                });
            };
            look_into(text, request.index, 0, true);
            if (pool != nullptr) look_into(pool->text, pool->index, pool->front, false);
        }
        return best;
    }

    // Tokens that most voters continue with, and in `shares_` each one's part of those that came so far. Ties go to the
    // newest. Ends where the path keeps less than `min_share` of all, or nothing is left to follow.
    void take_majority(const Text& text, int64_t limit, double min_share, Text& path) {
        if (runs_.size() < voters_.size()) runs_.resize(voters_.size());
        following_.clear();
        for (size_t voter = 0; voter < voters_.size(); ++voter) {
            follow(voters_[voter], text, limit, runs_[voter]);
            following_.push_back(voter);
        }
        double kept = 1.0;
        for (size_t offset = 0; offset < static_cast<size_t>(limit); ++offset) {
            keep([&](const Text& run) { return run.size() > offset; });
            if (following_.empty()) return;
            if (following_.size() == 1) {
                const Text& run = runs_[following_[0]];
                path.insert(path.end(), run.begin() + offset, run.end());
                shares_.resize(path.size(), 1.0);
                return;
            }
            Token token = 0;
            int64_t most = 0;
            for (const size_t one : following_) {
                const auto votes = std::count_if(following_.begin(), following_.end(), [&](size_t other) {
                    return runs_[other][offset] == runs_[one][offset];
                });
                if (votes > most) most = votes, token = runs_[one][offset];
            }
            const double share = static_cast<double>(most) / static_cast<double>(following_.size());
            kept *= share;
            if (kept < min_share) return;
            path.push_back(token);
            shares_.push_back(share);
            keep([&](const Text& run) { return run[offset] == token; });
        }
    }

    template <class Keeps>
    void keep(Keeps keeps) {
        following_.erase(std::remove_if(following_.begin(), following_.end(),
                                        [&](size_t voter) { return !keeps(runs_[voter]); }),
                         following_.end());
    }

    // What follows one occurrence, at most `limit` tokens; in the pool it ends with the output.
    static void follow(const Voter& voter, const Text& text, int64_t limit, Text& run) {
        if (voter.is_own) return continuation(text, voter.start, limit, run);
        const auto first = voter.text->begin() + voter.start;
        const auto stop = std::min<int64_t>(limit, voter.text->end() - first);
        run.assign(first, std::find(first, first + stop, END_OF_OUTPUT));
    }

    bool guess_predicted(Request& request, int part, int64_t limit) const {
        if (!request.predictions[part]) return false;
        Prediction& prediction = *request.predictions[part];
        while (prediction.num_read < static_cast<int64_t>(request.text.size()))
            follow_token(prediction, request, parts_[part]);
        if (prediction.lost) return false;
        const auto first = std::min(prediction.text.begin() + prediction.cursor, prediction.text.end());
        request.guesses[part].tokens.assign(first, first + std::min<int64_t>(limit, prediction.text.end() - first));
        request.guesses[part].length = prediction.length;
        return true;
    }

    // Moves the cursor over the next token of the output.
    static void follow_token(Prediction& prediction, const Request& request, const Part& with) {
        const Token token = request.text[prediction.num_read++];
        const bool has_more = prediction.cursor < static_cast<int64_t>(prediction.text.size());
        if (!prediction.lost && has_more && prediction.text[prediction.cursor] == token) {
            ++prediction.cursor;
            ++prediction.length;
            if (prediction.length >= with.anchor_length) prediction.anchor = prediction.cursor;
        } else {
            prediction.lost = true;
            realign(prediction, request, with);
        }
    }

    // Looks the output's end up in the prediction; sets the cursor if it is there.
    static void realign(Prediction& prediction, const Request& request, const Part& with) {
        const int64_t end = prediction.num_read;
        for (size_t at = 0; at < prediction.sizes.size(); ++at) {
            const int size = prediction.sizes[at];
            if (end - size < request.num_prompt) continue;
            const Token* ngram_end = request.text.data() + end;
            const Places& places = prediction.places[at];
            int64_t place = places.behind(prediction.text, ngram_end, prediction.anchor);
            const bool is_far = size >= with.far_size;
            if (place > prediction.anchor + with.near_tokens && !is_far) continue;
            if (place < 0 && is_far) place = places.until(prediction.text, ngram_end, prediction.anchor);
            if (place < 0) continue;
            prediction.cursor = place;
            prediction.lost = false;
            prediction.length = agreement(request.text, end, prediction.text, place, 0, with.max_agreement);
            return;
        }
    }

    std::vector<Part> parts_;
    std::vector<std::vector<int>> sizes_;  // by part, ascending
    std::vector<int> all_sizes_;
    std::vector<Pools> pools_;  // by part
    // Kept from one look-up to the next for their memory.
    std::vector<double> shares_;
    std::vector<Voter> voters_;
    std::vector<Text> runs_;
    std::vector<size_t> following_;
};

}  // namespace dp
