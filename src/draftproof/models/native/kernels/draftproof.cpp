// The library's C interface: the only file that is compiled. Called through ctypes by draftproof.models.native.
//
// Functions that can fail return null or an error text in thread-local memory; nothing throws across the border.
#include <mutex>
#include <string>

#include "reference.h"
#include "rounding.h"

namespace dp {
namespace {

thread_local std::string last_error;

// Mirrors draftproof.models.native.library.OUT_OF_MEMORY.
constexpr const char* OUT_OF_MEMORY = "out of memory";

template <class F> const char* guarded(F body) {
    try {
        body();
        return nullptr;
    } catch (const std::bad_alloc&) {
        last_error = OUT_OF_MEMORY;
        return last_error.c_str();
    } catch (const std::exception& error) {
        last_error = error.what();
        return last_error.c_str();
    }
}

template <class T, class S>
std::shared_ptr<Storage> pack_floats(Arena& arena, int inputs, int channels, const void* source, int threads) {
    auto matrix = std::make_shared<Matrix<T>>(arena, inputs, channels);
    auto job = [&](Team& team, int) { pack(team, *matrix, static_cast<const S*>(source)); };
    Pool::instance().run(threads, job);
    return matrix;
}

template <class F>
std::shared_ptr<Storage> pack_blocks(Arena& arena, int inputs, int channels, const void* source, int threads) {
    auto matrix = std::make_shared<Quantized<F>>(arena, inputs, channels);
    std::atomic<bool> is_finite{true};
    auto job = [&](Team& team, int) {
        if (!matrix->pack(team, static_cast<const uint8_t*>(source))) is_finite = false;
    };
    Pool::instance().run(threads, job);
    if (!is_finite) throw std::invalid_argument("NaN or infinite scales");
    return matrix;
}

// Weights [channels][inputs] of that type as the kernels keep them: floats as T, blocks as they are.
template <class T>
std::shared_ptr<Storage> pack_any(Arena& arena, int inputs, int channels, const void* source, int type, int threads) {
    switch (type) {
        case SOURCE_F32: return pack_floats<T, float>(arena, inputs, channels, source, threads);
        case SOURCE_F16: return pack_floats<T, f16>(arena, inputs, channels, source, threads);
        case SOURCE_BF16: return pack_floats<T, bf16>(arena, inputs, channels, source, threads);
        case SOURCE_Q4_0: return pack_blocks<Q4_0>(arena, inputs, channels, source, threads);
        case SOURCE_Q4_1: return pack_blocks<Q4_1>(arena, inputs, channels, source, threads);
        case SOURCE_Q5_0: return pack_blocks<Q5_0>(arena, inputs, channels, source, threads);
        case SOURCE_Q5_1: return pack_blocks<Q5_1>(arena, inputs, channels, source, threads);
        case SOURCE_Q8_0: return pack_blocks<Q8_0>(arena, inputs, channels, source, threads);
        case SOURCE_Q4_K: return pack_blocks<Q4_K>(arena, inputs, channels, source, threads);
        case SOURCE_Q5_K: return pack_blocks<Q5_K>(arena, inputs, channels, source, threads);
        case SOURCE_Q6_K: return pack_blocks<Q6_K>(arena, inputs, channels, source, threads);
        default: throw std::invalid_argument("unknown type of weights: " + std::to_string(type));
    }
}

template <class F> void round_as(const void* source, int type, size_t num_blocks, uint8_t* to, int threads) {
    auto job = [&](Team& team, int) {
        if (type == SOURCE_F32) round_blocks<F>(team, static_cast<const float*>(source), num_blocks, to);
        if (type == SOURCE_BF16) round_blocks<F>(team, static_cast<const bf16*>(source), num_blocks, to);
        if (type == SOURCE_F16) round_blocks<F>(team, static_cast<const f16*>(source), num_blocks, to);
    };
    Pool::instance().run(threads, job);
}

// `count` floats of that type, and zeros up to `size`.
Floats read_floats(const void* source, int type, size_t count, size_t size) {
    Floats floats(size);
    for (size_t index = 0; index < count; ++index) {
        if (type == SOURCE_F32) floats[index] = static_cast<const float*>(source)[index];
        if (type == SOURCE_BF16) floats[index] = to_float(static_cast<const bf16*>(source)[index]);
        if (type == SOURCE_F16) floats[index] = to_float(static_cast<const f16*>(source)[index]);
    }
    return floats;
}

// Which tensor of a model is being loaded; mirrors draftproof.models.tensors.Part.
enum Part { EMBEDDING, HEAD, FINAL_NORM, INPUT_NORM, MLP_NORM, Q, K, V, O, GATE, UP, DOWN,
            Q_BIAS, K_BIAS, V_BIAS, O_BIAS, GATE_BIAS, UP_BIAS, DOWN_BIAS,
            Q_NORM, K_NORM, ATTENTION_POST_NORM, MLP_POST_NORM, ROUTER };

class AnyModel {
  public:
    virtual ~AnyModel() = default;
    virtual void load_part(int part, int layer, int expert, const void* source, int type) = 0;
    virtual void forward(const Batch& batch, void* cache, int64_t num_blocks, float* logits, bool reference) = 0;
    virtual void linears_only(int num_rows) = 0;
};

template <class T> class Model final : public AnyModel {
  public:
    Model(const Shape& shape, const LayerShape* layers) : weights_(shape, layers) {}

    void load_part(int part, int layer, int expert, const void* source, int type) override {
        const Shape& s = weights_.shape;
        Layer& l = weights_.layers[layer];
        const bool has_experts = l.shape.num_experts > 0;
        Linear& gate_up = has_experts ? l.expert_gate_up[expert] : l.gate_up;
        Linear& down = has_experts ? l.expert_down[expert] : l.down;
        const int hidden = s.hidden_size, q = weights_.q_size, kv = weights_.kv_size;
        const int inter = has_experts ? l.shape.expert_size : s.intermediate_size;
        auto storage = [&](int inputs, int channels) {
            return pack_any<T>(weights_.arena, inputs, channels, source, type, s.num_threads);
        };
        auto matrix = [&](Linear& linear, int inputs, int channels, int offset = 0) {
            linear.add(storage(inputs, channels), offset);
        };
        auto bias = [&](Linear& linear, int channels, int total, int offset = 0) {
            const Floats values = read_floats(source, type, channels, channels);
            linear.bias.resize(total);
            std::copy(values.begin(), values.end(), linear.bias.begin() + offset);
        };
        auto norm = [&](Floats& to, int size) { to = read_floats(source, type, size, round_up(size, LANES)); };
        switch (part) {
            case EMBEDDING:
                weights_.embedding = storage(hidden, s.vocab_size);
                if (s.tie_embeddings) weights_.head.add(weights_.embedding, 0);
                return;
            case HEAD: return matrix(weights_.head, hidden, s.vocab_size);
            case FINAL_NORM: return norm(weights_.final_norm, hidden);
            case INPUT_NORM: return norm(l.input_norm, hidden);
            case MLP_NORM: return norm(l.mlp_norm, hidden);
            case ATTENTION_POST_NORM: return norm(l.attention_post_norm, hidden);
            case MLP_POST_NORM: return norm(l.mlp_post_norm, hidden);
            case Q_NORM: return norm(l.q_norm, s.head_dim);
            case K_NORM: return norm(l.k_norm, s.head_dim);
            case Q: return matrix(l.qkv, hidden, q);
            case K: return matrix(l.qkv, hidden, kv, q);
            case V: return matrix(l.qkv, hidden, kv, q + kv);
            case O: return matrix(l.o, q, hidden);
            case ROUTER: return matrix(l.router, hidden, l.shape.num_experts);
            case GATE: return matrix(gate_up, hidden, inter);
            case UP: return matrix(gate_up, hidden, inter, inter);
            case DOWN: return matrix(down, inter, hidden);
            case Q_BIAS: return bias(l.qkv, q, q + 2 * kv);
            case K_BIAS: return bias(l.qkv, kv, q + 2 * kv, q);
            case V_BIAS: return bias(l.qkv, kv, q + 2 * kv, q + kv);
            case O_BIAS: return bias(l.o, hidden, hidden);
            case GATE_BIAS: return bias(l.gate_up, inter, 2 * inter);
            case UP_BIAS: return bias(l.gate_up, inter, 2 * inter, inter);
            case DOWN_BIAS: return bias(l.down, hidden, hidden);
            default: throw std::invalid_argument("unknown part of a model");
        }
    }

    void forward(const Batch& batch, void* data, int64_t num_blocks, float* logits, bool reference) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Shape& s = weights_.shape;
        plan_.make(batch, {s.vocab_size, num_blocks, s.num_heads, s.num_kv_heads, s.num_threads});
        const Cache<T> cache{static_cast<T*>(data), s.num_layers, s.num_kv_heads, s.head_dim};
        if (reference) return Reference<T>(weights_, plan_, batch, cache).run(logits);
        space_.prepare(weights_, int(batch.num_rows), int(batch.num_logit_rows));
        Forward<T> pass(weights_, plan_, batch, space_, cache, logits);
        Pool::instance().run(s.num_threads, pass);
    }

    // The matrix products of a pass and nothing else, over whatever the buffers hold.
    void linears_only(int num_rows) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        space_.prepare(weights_, num_rows, num_rows);
        const Rows logits{logits_.at_least(size_t(num_rows) * weights_.shape.vocab_size), size_t(weights_.shape.vocab_size)};
        auto job = [&](Team& team, int) {
            auto product = [&](const Linear& linear, const Rows& out) {
                const Input x = space_.shared_input(linear.num_inputs(), num_rows);
                multiply(team, linear, x, num_rows, out, false);
                team.barrier();
            };
            for (const Layer& l : weights_.layers) {
                product(l.qkv, space_.qkv);
                product(l.o, space_.hidden);
                if (l.shape.num_experts) {
                    product(l.router, space_.scores);
                    for (int expert = 0; expert < l.shape.num_used; ++expert) {
                        product(l.expert_gate_up[expert], space_.visit_gate_up);
                        product(l.expert_down[expert], space_.visited);
                    }
                } else {
                    product(l.gate_up, space_.gate_up);
                    product(l.down, space_.hidden);
                }
            }
            product(weights_.head, logits);
        };
        Pool::instance().run(weights_.shape.num_threads, job);
    }

  private:
    Weights weights_;
    Workspace space_;
    Plan plan_;
    Buffer<float> logits_;
    std::mutex mutex_;
};

// One linear layer by itself.
class OneLinear {
  public:
    OneLinear(int inputs, int channels, const void* weight, int type, bool is_bf16, const float* bias, int threads)
        : threads_(threads) {
        linear_.add(is_bf16 ? pack_any<bf16>(arena_, inputs, channels, weight, type, threads)
                            : pack_any<float>(arena_, inputs, channels, weight, type, threads), 0);
        if (bias) linear_.bias.assign(bias, bias + channels);
    }

    void apply(const float* x, int num_rows, float* out, bool reference) const {
        const Storage& storage = *linear_.pieces.front().storage;
        const size_t inputs = storage.num_inputs, channels = storage.num_channels;
        if (reference) {
            for (int row = 0; row < num_rows; ++row) {
                const Floats sums = reference_linear(linear_, Floats(x + row * inputs, x + (row + 1) * inputs));
                std::copy(sums.begin(), sums.end(), out + row * channels);
            }
            return;
        }
        const int num_blocks = int(inputs / BLOCK_INPUTS), num_super_blocks = int(inputs / SUPER_INPUTS);
        const size_t stride = round_up(inputs, 2 * AMX_ROWS);  // `prepare` fills rows up to whole tiles
        Floats rows(stride * num_rows);
        std::vector<Int8Block> blocks(Int8Rows<Int8Block>::blocks_for(num_blocks, num_rows));
        std::vector<Int8SuperBlock> super_blocks(Int8Rows<Int8SuperBlock>::blocks_for(num_super_blocks, num_rows));
        const Input input{{rows.data(), stride},
                          {blocks.data(), num_blocks, num_rows},
                          {super_blocks.data(), num_super_blocks, num_rows}};
        for (int row = 0; row < num_rows; ++row) {
            std::copy(x + row * inputs, x + (row + 1) * inputs, input.floats.row(row));
            prepare_row(input.floats.row(row), row, linear_, input);
        }
        auto job = [&](Team& team, int) { multiply(team, linear_, input, num_rows, {out, channels}, false); };
        Pool::instance().run(threads_, job);
    }

    void read_channel(int channel, float* weights) const {
        linear_.pieces.front().storage->read_channel(channel, weights);
    }

  private:
    Arena arena_;
    Linear linear_;
    int threads_;
};

}  // namespace
}  // namespace dp

extern "C" {

// The instructions in use, or nothing where the kernels would be of no use.
const char* dp_description() {
#if defined(__x86_64__) && !defined(__FMA__)
    return "";  // fused multiply-add in software would be hundreds of times too slow
#elif defined(__AVX512BF16__) && defined(__AVX512VNNI__)
    switch (dp::amx_state()) {
        case dp::Amx::in_use: return "AVX-512 with BF16 and VNNI, AMX";
        case dp::Amx::switched_off: return "AVX-512 with BF16 and VNNI (AMX switched off by DRAFTPROOF_AMX)";
        case dp::Amx::refused: return "AVX-512 with BF16 and VNNI (AMX refused by the operating system)";
        default: return "AVX-512 with BF16 and VNNI";
    }
#elif defined(__AVX512VNNI__)
    return "AVX-512 with VNNI";
#elif defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVXVNNI__)
    return "AVX2 with VNNI";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__ARM_FEATURE_DOTPROD)
    return "NEON with dot products";
#elif defined(__aarch64__)
    return "NEON";
#else
    return "generic";
#endif
}

const char* dp_model_new(const dp::Shape* shape, const dp::LayerShape* layers, int32_t is_bf16, void** model) {
    return dp::guarded([&] {
        *model = is_bf16 ? static_cast<dp::AnyModel*>(new dp::Model<dp::bf16>(*shape, layers))
                         : static_cast<dp::AnyModel*>(new dp::Model<float>(*shape, layers));
    });
}

void dp_model_free(void* model) { delete static_cast<dp::AnyModel*>(model); }

const char* dp_model_load(void* model, int32_t part, int32_t layer, int32_t expert, const void* source,
                          int32_t source_type) {
    return dp::guarded([&] { static_cast<dp::AnyModel*>(model)->load_part(part, layer, expert, source, source_type); });
}

const char* dp_model_forward(void* model, const dp::Batch* batch, void* cache, int64_t num_blocks, float* logits,
                             int32_t reference) {
    return dp::guarded(
        [&] { static_cast<dp::AnyModel*>(model)->forward(*batch, cache, num_blocks, logits, reference != 0); });
}

const char* dp_model_linears_only(void* model, int32_t num_rows) {
    return dp::guarded([&] { static_cast<dp::AnyModel*>(model)->linears_only(num_rows); });
}

const char* dp_linear_new(int32_t inputs, int32_t channels, const void* weight, int32_t source_type, int32_t is_bf16,
                          const float* bias, int32_t threads, void** linear) {
    return dp::guarded([&] {
        *linear = new dp::OneLinear(inputs, channels, weight, source_type, is_bf16 != 0, bias, threads);
    });
}

void dp_linear_free(void* linear) { delete static_cast<dp::OneLinear*>(linear); }

const char* dp_linear_apply(void* linear, const float* x, int32_t num_rows, float* out, int32_t reference) {
    return dp::guarded([&] { static_cast<dp::OneLinear*>(linear)->apply(x, num_rows, out, reference != 0); });
}

// The weights of one output as an embedding reads them, [inputs].
void dp_linear_read_channel(void* linear, int32_t channel, float* weights) {
    static_cast<dp::OneLinear*>(linear)->read_channel(channel, weights);
}

// Values in whole blocks of 32, rounded to that type of blocks.
const char* dp_round(const void* source, int32_t source_type, int64_t num_blocks, int32_t type, void* to, int32_t threads) {
    return dp::guarded([&] {
        uint8_t* blocks = static_cast<uint8_t*>(to);
        switch (type) {
            case dp::SOURCE_Q4_0: return dp::round_as<dp::Q4_0>(source, source_type, size_t(num_blocks), blocks, threads);
            case dp::SOURCE_Q8_0: return dp::round_as<dp::Q8_0>(source, source_type, size_t(num_blocks), blocks, threads);
            default: throw std::invalid_argument("floats are not rounded to type " + std::to_string(type));
        }
    });
}

void dp_advise_huge_pages(void* start, int64_t bytes) { dp::advise_huge_pages(start, size_t(bytes)); }

// Reads `bytes` once with all threads, as the products do; the sum keeps the reads alive. For benchmarks.
int64_t dp_read_memory(const void* data, int64_t bytes, int32_t threads) {
    std::atomic<int64_t> total{0};
    auto job = [&](dp::Team& team, int) {
        constexpr int64_t PIECE = 1 << 16, AHEAD = 8192;
        team.share(int(bytes / PIECE), [&](int first, int last) {
            dp::int8v sums[4] = {};
            const char* from = static_cast<const char*>(data);
            for (int64_t at = first * PIECE; at < last * PIECE; at += 128) {
                __builtin_prefetch(from + at + AHEAD);
                __builtin_prefetch(from + at + AHEAD + 64);
                for (int part = 0; part < 4; ++part)
                    sums[part] = sums[part] + dp::load<dp::int8v>(from + at + part * 32);
            }
            total += (sums[0] + sums[1] + sums[2] + sums[3])[0];
        });
    };
    dp::Pool::instance().run(threads, job);
    return total;
}
}
