// How long a draft is worth its rows; the reference, with the reasons, is proposers/evidence.py. Every product and sum
// stands in the reference's order, so that both draft alike to the last bit.
#pragma once

#include <array>

#include "occurrences.h"

namespace dp {

// What the priors of Evidence are, from proposers/evidence.py.
struct Prior {
    std::array<double, 12> agreement;
    double weight;
    double decay;
};

struct Prices {
    const double* data;
    int64_t size;
};

class Evidence {
public:
    explicit Evidence(const Prior& prior) : decay_(prior.decay) {
        for (size_t row = 0; row < agreed_.size(); ++row) agreed_[row] = prior.agreement[row] * prior.weight;
        seen_.fill(prior.weight);
    }

    double chance(int64_t length) const { return agreed_[row(length)] / seen_[row(length)]; }

    int64_t num_worth(int64_t length, int64_t limit, Prices prices, const std::vector<double>& shares) const {
        double survival = 1.0, gain = 0.0, best = prices.size > 0 ? -prices.data[0] : 0.0;
        int64_t num_worth = 0;
        for (int64_t drafted = 0; drafted < std::min(limit, prices.size - 1); ++drafted) {
            survival *= chance(length + drafted);
            if (drafted < static_cast<int64_t>(shares.size())) survival *= shares[drafted];
            gain += survival;
            if (gain - prices.data[drafted + 1] > best) {
                best = gain - prices.data[drafted + 1];
                num_worth = drafted + 1;
            }
        }
        return num_worth;
    }

    void learn(int64_t length, const Text& guess, const Token* came, int64_t num_came) {
        const int64_t stop = std::min(static_cast<int64_t>(guess.size()), num_came);
        for (int64_t offset = 0; offset < stop; ++offset) {
            const bool agrees = guess[offset] == came[offset];
            const int at = row(length + offset);
            agreed_[at] = agreed_[at] * decay_ + (agrees ? 1.0 : 0.0);
            seen_[at] = seen_[at] * decay_ + 1.0;
            if (!agrees) return;
        }
    }

private:
    static int row(int64_t length) {
        return length <= 8 ? static_cast<int>(length) : length < 16 ? 9 : length < 32 ? 10 : 11;
    }

    double decay_;
    std::array<double, 12> agreed_, seen_;
};

}  // namespace dp
