// Mixtures of experts: which rows go through which experts, and with what weight. Knows no weights and no layers.
//
// The numbers promised for one row, whatever shares the pass with it: p = exp(score - maximum) over the sum of all
// (with rising expert); the experts of the largest scores are chosen, among equals the first; where shares are
// normalised, each is divided by the sum of the chosen (largest first). Results are added with rising expert, from zero.
#pragma once

#include <algorithm>
#include <vector>

#include "linear.h"

namespace dp {

// Chooses num_used of the experts, largest score first, and their weights.
inline void choose_experts(const float* scores, int num_experts, int num_used, bool is_normalised, int* experts,
                           float* weights) {
    const auto exp_one = [](float x) { return exp_of(splat<vec8>(x))[0]; };
    float maximum = scores[0], total = 0.0f, chosen = 0.0f;
    for (int expert = 1; expert < num_experts; ++expert)
        maximum = scores[expert] > maximum ? scores[expert] : maximum;
    for (int expert = 0; expert < num_experts; ++expert) total = total + exp_one(scores[expert] - maximum);
    for (int rank = 0; rank < num_used; ++rank) {
        int best = -1;
        for (int expert = 0; expert < num_experts; ++expert) {
            if (std::find(experts, experts + rank, expert) != experts + rank) continue;
            if (best < 0 || scores[expert] > scores[best]) best = expert;
        }
        experts[rank] = best;
        weights[rank] = exp_one(scores[best] - maximum) / total;
        chosen = chosen + weights[rank];
    }
    for (int rank = 0; is_normalised && rank < num_used; ++rank) weights[rank] = weights[rank] / chosen;
}

// The visits of a pass's rows to the experts of one layer.
struct Routing {
    struct Visit {
        int row, expert;
        float weight;
    };
    std::vector<Visit> visits;     // expert by expert, in each with rising row
    std::vector<int> first_visit;  // [num_experts + 1]
    std::vector<int> of_row;       // [num_rows][num_used]: its visits, with rising expert
    int num_used = 0;

    // Before a pass: `make` takes no memory for as many rows and experts, wherever it runs.
    void reserve(int num_rows, int num_experts, int used) {
        const size_t num_visits = size_t(num_rows) * used;
        visits.reserve(num_visits), of_row.reserve(num_visits), experts_.reserve(num_visits), weights_.reserve(num_visits);
        first_visit.reserve(num_experts + 1), next_.reserve(num_experts + 1);
    }

    void make(const Rows& scores, int num_rows, int num_experts, int used, bool is_normalised) {
        num_used = used;
        experts_.resize(size_t(num_rows) * used), weights_.resize(experts_.size());
        first_visit.assign(num_experts + 1, 0);
        for (int row = 0; row < num_rows; ++row) {
            int* experts = experts_.data() + size_t(row) * used;
            choose_experts(scores.row(row), num_experts, used, is_normalised, experts, weights_.data() + size_t(row) * used);
            for (int rank = 0; rank < used; ++rank) ++first_visit[experts[rank] + 1];
        }
        for (int expert = 0; expert < num_experts; ++expert) first_visit[expert + 1] += first_visit[expert];
        visits.resize(experts_.size()), of_row.resize(experts_.size());
        next_ = first_visit;
        for (int row = 0; row < num_rows; ++row) {
            int* own = of_row.data() + size_t(row) * used;
            for (int rank = 0; rank < used; ++rank) {
                const size_t choice = size_t(row) * used + rank;
                own[rank] = next_[experts_[choice]]++;
                visits[own[rank]] = {row, experts_[choice], weights_[choice]};
            }
            std::sort(own, own + used);
        }
    }

    int num_visits(int expert) const { return first_visit[expert + 1] - first_visit[expert]; }

  private:
    std::vector<int> experts_, next_;
    std::vector<float> weights_;
};

}  // namespace dp
