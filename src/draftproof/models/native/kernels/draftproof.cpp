// The library's C interface: the only file that is compiled. Called through ctypes by draftproof.models.native.
//
// Functions that can fail return null or an error text in thread-local memory; nothing throws across the border.
#include <mutex>
#include <string>

#include "reference.h"

namespace dp {
namespace {

thread_local std::string last_error;

template <class F> const char* guarded(F body) {
    try {
        body();
        return nullptr;
    } catch (const std::exception& error) {
        last_error = error.what();
        return last_error.c_str();
    }
}

template <class T, class S> void pack_any(Matrix<T>& matrix, const void* source, int channels, int offset, Layout layout,
                                          int threads) {
    auto job = [&](Team& team, int) { pack(team, matrix, static_cast<const S*>(source), channels, offset, layout); };
    Pool::instance().run(threads, job);
}

enum SourceType { SOURCE_F32 = 0, SOURCE_BF16 = 1, SOURCE_F16 = 2 };

template <class T> void pack_from(Matrix<T>& matrix, const void* source, int type, int channels, int offset,
                                  Layout layout, int threads) {
    if (type == SOURCE_F32) return pack_any<T, float>(matrix, source, channels, offset, layout, threads);
    if (type == SOURCE_BF16) return pack_any<T, bf16>(matrix, source, channels, offset, layout, threads);
    pack_any<T, f16>(matrix, source, channels, offset, layout, threads);
}

void copy_floats(float* to, const void* source, int type, int count) {
    for (int index = 0; index < count; ++index) {
        if (type == SOURCE_F32) to[index] = static_cast<const float*>(source)[index];
        if (type == SOURCE_BF16) to[index] = to_float(static_cast<const bf16*>(source)[index]);
        if (type == SOURCE_F16) to[index] = to_float(static_cast<const f16*>(source)[index]);
    }
}

// Which tensor of a model is being loaded; mirrors draftproof.models.native.weights.Part.
enum Part { EMBEDDING, HEAD, FINAL_NORM, INPUT_NORM, POST_NORM, Q, K, V, O, GATE, UP, DOWN,
            Q_BIAS, K_BIAS, V_BIAS, O_BIAS, GATE_BIAS, UP_BIAS, DOWN_BIAS };

class AnyModel {
  public:
    virtual ~AnyModel() = default;
    virtual void load_part(int part, int layer, const void* source, int type) = 0;
    virtual void forward(const Batch& batch, void* cache, int64_t num_blocks, float* logits, bool reference) = 0;
    virtual void linears_only(int num_rows) = 0;
};

template <class T> class Model final : public AnyModel {
  public:
    explicit Model(const Shape& shape) : weights_(shape) {}

    void load_part(int part, int layer, const void* source, int type) override {
        const Shape& s = weights_.shape;
        Layer<T>& l = weights_.layers[layer];
        const int q = weights_.q_size, kv = weights_.kv_size, inter = s.intermediate_size;
        auto matrix = [&](Matrix<T>& m, int channels, int offset, Layout layout = Layout::whole) {
            pack_from(m, source, type, channels, offset, layout, s.num_threads);
        };
        auto bias = [&](Matrix<T>& m, int channels, int offset, Layout layout = Layout::whole) {
            std::vector<float> values(channels);
            copy_floats(values.data(), source, type, channels);
            for (int channel = 0; channel < channels; ++channel)
                m.bias[offset + Matrix<T>::place(channel, layout)] = values[channel];
        };
        switch (part) {
            case EMBEDDING: return matrix(weights_.embedding, s.vocab_size, 0);
            case HEAD: return matrix(weights_.head, s.vocab_size, 0);
            case FINAL_NORM: return copy_floats(weights_.final_norm, source, type, s.hidden_size);
            case INPUT_NORM: return copy_floats(l.input_norm, source, type, s.hidden_size);
            case POST_NORM: return copy_floats(l.post_norm, source, type, s.hidden_size);
            case Q: return matrix(l.qkv, q, 0);
            case K: return matrix(l.qkv, kv, q);
            case V: return matrix(l.qkv, kv, q + kv);
            case O: return matrix(l.o, s.hidden_size, 0);
            case GATE: return matrix(l.gate_up, inter, 0, Layout::low_half);
            case UP: return matrix(l.gate_up, inter, 0, Layout::high_half);
            case DOWN: return matrix(l.down, s.hidden_size, 0);
            case Q_BIAS: return bias(l.qkv, q, 0);
            case K_BIAS: return bias(l.qkv, kv, q);
            case V_BIAS: return bias(l.qkv, kv, q + kv);
            case O_BIAS: return bias(l.o, s.hidden_size, 0);
            case GATE_BIAS: return bias(l.gate_up, inter, 0, Layout::low_half);
            case UP_BIAS: return bias(l.gate_up, inter, 0, Layout::high_half);
            case DOWN_BIAS: return bias(l.down, s.hidden_size, 0);
            default: throw std::invalid_argument("unknown part of a model");
        }
    }

    void forward(const Batch& batch, void* data, int64_t num_blocks, float* logits, bool reference) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Shape& s = weights_.shape;
        plan_.make(batch, {s.vocab_size, num_blocks, s.num_heads, s.num_kv_heads, s.num_threads});
        const Cache<T> cache{static_cast<T*>(data), num_blocks, s.num_kv_heads, s.head_dim};
        if (reference) return Reference<T>(weights_, plan_, batch, cache).run(logits);
        space_.prepare(weights_, int(batch.num_rows), int(batch.num_logit_rows));
        Forward<T> pass(weights_, plan_, batch, space_, cache, logits);
        Pool::instance().run(s.num_threads, pass);
    }

    // The matrix products of a pass and nothing else, over whatever the buffers hold.
    void linears_only(int num_rows) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        space_.prepare(weights_, num_rows, num_rows);
        float* wide = wide_.at_least(size_t(num_rows) * (weights_.gate_up_channels() + weights_.shape.vocab_size));
        auto job = [&](Team& team, int) {
            auto product = [&](const Matrix<T>& m, const Rows& x, const Rows& out) {
                multiply(team, m, x, num_rows, StoreTo<T>{m, out});
                team.barrier();
            };
            for (const Layer<T>& l : weights_.layers) {
                product(l.qkv, space_.normed, space_.qkv);
                product(l.o, space_.attended, space_.hidden);
                product(l.gate_up, space_.normed, {wide, size_t(weights_.gate_up_channels())});
                product(l.down, space_.gated, space_.hidden);
            }
            product(weights_.head, space_.normed, {wide, size_t(weights_.shape.vocab_size)});
        };
        Pool::instance().run(weights_.shape.num_threads, job);
    }

  private:
    Weights<T> weights_;
    Workspace space_;
    Plan plan_;
    Buffer wide_;
    std::mutex mutex_;
};

class AnyLinear {
  public:
    virtual ~AnyLinear() = default;
    virtual void apply(const float* x, int num_rows, float* out, bool reference) = 0;
};

template <class T> class Linear final : public AnyLinear {
  public:
    Linear(int inputs, int channels, const void* weight, int type, const float* bias, int threads)
        : arena_(Matrix<T>::bytes(inputs, channels)), threads_(threads) {
        matrix_.allocate_in(arena_, inputs, channels, bias != nullptr);
        pack_from(matrix_, weight, type, channels, 0, Layout::whole, threads);
        if (bias) std::memcpy(matrix_.bias, bias, channels * sizeof(float));
    }

    void apply(const float* x, int num_rows, float* out, bool reference) override {
        const size_t inputs = matrix_.num_inputs, channels = matrix_.num_channels;
        if (reference) {
            for (int row = 0; row < num_rows; ++row) {
                const Floats sums = reference_linear(matrix_, Floats(x + row * inputs, x + (row + 1) * inputs));
                std::copy(sums.begin(), sums.end(), out + row * channels);
            }
            return;
        }
        auto job = [&](Team& team, int) {
            multiply(team, matrix_, {const_cast<float*>(x), inputs}, num_rows, StoreTo<T>{matrix_, {out, channels}});
        };
        Pool::instance().run(threads_, job);
    }

  private:
    Arena arena_;
    Matrix<T> matrix_;
    int threads_;
};

int64_t argmax(const float* row, int64_t size) {
    vec8 best = splat<vec8>(-std::numeric_limits<float>::infinity());
    int64_t index = 0;
    for (; index + LANES <= size; index += LANES) {
        const vec8 v = load<vec8>(row + index);
        best = v > best ? v : best;
    }
    float top = max_lanes(best);
    for (; index < size; ++index) top = row[index] > top ? row[index] : top;
    for (index = 0; index < size; ++index)
        if (row[index] == top) return index;
    return 0;  // nothing but NaN
}

}  // namespace
}  // namespace dp

extern "C" {

const char* dp_description() {
#if defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__) && defined(__FMA__)
    return "AVX2";
#elif defined(__aarch64__)
    return "NEON";
#elif defined(__x86_64__) && !defined(__FMA__)
    return "";  // fused multiply-add in software would be hundreds of times too slow
#else
    return "generic";
#endif
}

int32_t dp_panel_channels() { return dp::PANEL; }

const char* dp_model_new(const dp::Shape* shape, int32_t is_bf16, void** model) {
    return dp::guarded([&] {
        *model = is_bf16 ? static_cast<dp::AnyModel*>(new dp::Model<dp::bf16>(*shape))
                         : static_cast<dp::AnyModel*>(new dp::Model<float>(*shape));
    });
}

void dp_model_free(void* model) { delete static_cast<dp::AnyModel*>(model); }

const char* dp_model_load(void* model, int32_t part, int32_t layer, const void* source, int32_t source_type) {
    return dp::guarded([&] { static_cast<dp::AnyModel*>(model)->load_part(part, layer, source, source_type); });
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
        *linear = is_bf16 ? static_cast<dp::AnyLinear*>(new dp::Linear<dp::bf16>(inputs, channels, weight, source_type,
                                                                                 bias, threads))
                          : static_cast<dp::AnyLinear*>(new dp::Linear<float>(inputs, channels, weight, source_type,
                                                                              bias, threads));
    });
}

void dp_linear_free(void* linear) { delete static_cast<dp::AnyLinear*>(linear); }

const char* dp_linear_apply(void* linear, const float* x, int32_t num_rows, float* out, int32_t reference) {
    return dp::guarded([&] { static_cast<dp::AnyLinear*>(linear)->apply(x, num_rows, out, reference != 0); });
}

void dp_advise_huge_pages(void* start, int64_t bytes) { dp::advise_huge_pages(start, size_t(bytes)); }

void dp_argmax_rows(const float* logits, int64_t num_rows, int64_t vocab_size, int64_t* out) {
    for (int64_t row = 0; row < num_rows; ++row) out[row] = dp::argmax(logits + row * vocab_size, vocab_size);
}

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
