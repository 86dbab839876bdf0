// Runs the kernels without Python: products of all types and a small model, each against scalar code, == alone.
// Prints a hash of every result, so that two machines' (or an emulated one's) can be compared. Status 1: bits differ,
// or a thread of a pass took memory.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "draftproof.cpp"

namespace {

const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<int> taken_by_threads{0};

}  // namespace

void* operator new(size_t size) {
    if (std::this_thread::get_id() != main_thread) ++taken_by_threads;
    if (void* memory = std::malloc(size ? size : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

uint32_t state = 1;
uint32_t random_bits() { return state = state * 1664525u + 1013904223u, state >> 8; }
float random_float() { return float(int32_t(random_bits() % 20001) - 10000) / 8192.0f; }

bool is_good = true;

void report(const char* name, const char* storage, int number, const std::vector<float>& fast, const std::vector<float>& slow) {
    uint64_t hash = 1469598103934665603u;
    bool is_equal = true;
    for (size_t index = 0; index < fast.size(); ++index) {
        const uint32_t bits = dp::load<uint32_t>(&fast[index]);
        is_equal = is_equal && bits == dp::load<uint32_t>(&slow[index]);
        for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits >> shift & 0xff)) * 1099511628211u;
    }
    std::printf("%s %s %d %016llx %s\n", name, storage, number, static_cast<unsigned long long>(hash),
                is_equal ? "equal" : "DIFFERS");
    is_good = is_good && is_equal;
}

void check(const char* error) {
    if (!error) return;
    std::printf("%s\n", error);
    is_good = false;
}

struct Type { const char* name; int number, inputs, bytes, scales[2]; };  // scales: where halves lie in a block, or -1
const Type TYPES[] = {{"Q4_0", 2, 32, 18, {0, -1}},     {"Q4_1", 3, 32, 20, {0, 2}},      {"Q5_0", 6, 32, 22, {0, -1}},
                      {"Q5_1", 7, 32, 24, {0, 2}},      {"Q8_0", 8, 32, 34, {0, -1}},     {"Q4_K", 12, 256, 144, {0, 2}},
                      {"Q5_K", 13, 256, 176, {0, 2}},   {"Q6_K", 14, 256, 210, {208, -1}}, {"F32", 0, 1, 4, {-1, -1}},
                      {"F16", 1, 1, 2, {0, -1}},        {"BF16", 30, 1, 2, {-1, -1}}};

std::vector<uint8_t> random_weights(const Type& type, int inputs, int channels) {
    std::vector<uint8_t> data(size_t(inputs) / type.inputs * type.bytes * channels);
    for (uint8_t& byte : data) byte = uint8_t(random_bits());
    for (size_t block = 0; block < data.size(); block += type.bytes) {
        for (int at : type.scales)
            if (at >= 0) data[block + at + 1] = uint8_t(0x20 + random_bits() % 16 + 128 * (random_bits() % 2));
        if (type.number == 0 || type.number == 30) data[block + type.bytes - 1] = 0x3e;  // floats of size one or so
    }
    return data;
}

void check_products(const Type& type) {
    const int inputs = 768, channels = 83, most_rows = 40;
    const std::vector<uint8_t> weights = random_weights(type, inputs, channels);
    std::vector<float> bias(channels), x(size_t(most_rows) * inputs);
    for (float& value : bias) value = random_float();
    for (float& value : x) value = random_float();
    for (int is_bf16 = 0; is_bf16 < 2; ++is_bf16) {
        void* linear = nullptr;
        check(dp_linear_new(inputs, channels, weights.data(), type.number, is_bf16, bias.data(), 3, &linear));
        if (!linear) return;
        for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 33, 40}) {
            std::vector<float> fast(size_t(rows) * channels), slow(fast.size());
            check(dp_linear_apply(linear, x.data(), rows, fast.data(), 0));
            check(dp_linear_apply(linear, x.data(), rows, slow.data(), 1));
            report(type.name, is_bf16 ? "bfloat16" : "float32", rows, fast, slow);
        }
        dp_linear_free(linear);
    }
}

void load_model(void* model, const dp::Shape& s, const dp::LayerShape& l) {
    const int hidden = s.hidden_size, q = s.num_heads * s.head_dim, kv = s.num_kv_heads * s.head_dim;
    const auto part = [&](int number, int layer, size_t count, float offset, float size, int expert = 0) {
        std::vector<float> values(count);
        for (float& value : values) value = offset + size * random_float();
        check(dp_model_load(model, number, layer, expert, values.data(), dp::SOURCE_F32));
    };
    part(dp::EMBEDDING, 0, size_t(s.vocab_size) * hidden, 0, 1);
    part(dp::FINAL_NORM, 0, hidden, 1, 0.2f);
    for (int layer = 0; layer < s.num_layers; ++layer) {
        part(dp::INPUT_NORM, layer, hidden, 1, 0.2f), part(dp::MLP_NORM, layer, hidden, 1, 0.2f);
        part(dp::Q, layer, size_t(q) * hidden, 0, 0.1f), part(dp::K, layer, size_t(kv) * hidden, 0, 0.1f);
        part(dp::V, layer, size_t(kv) * hidden, 0, 0.1f), part(dp::O, layer, size_t(q) * hidden, 0, 0.1f);
        if (l.num_experts) part(dp::ROUTER, layer, size_t(l.num_experts) * hidden, 0, 0.1f);
        const size_t matrix = size_t(l.num_experts ? l.expert_size : s.intermediate_size) * hidden;
        for (int expert = 0; expert < std::max(1, l.num_experts); ++expert)
            for (int number : {dp::GATE, dp::UP, dp::DOWN}) part(number, layer, matrix, 0, 0.1f, expert);
    }
}

void check_model(const char* name, int is_bf16, int num_experts) {
    const dp::Shape shape{101, 72, 100, 2, 6, 2, 48, 1, 0, 0, 0, 2, dp::SILU, 1e-5f, 1.0f, 0.15f};
    const std::vector<dp::LayerShape> layers = {{0, 48, 1 << 30, num_experts, 2, 40, 1},
                                                {0, 48, 20, num_experts, 2, 40, 1}};
    void* model = nullptr;
    check(dp_model_new(&shape, layers.data(), is_bf16, &model));
    load_model(model, shape, layers[0]);
    constexpr int ROWS = 45, BLOCKS = 4;
    std::vector<int64_t> tokens, positions;
    for (int row = 0; row < ROWS; ++row) tokens.push_back(random_bits() % 101), positions.push_back(row);
    std::vector<float> cos(ROWS * 24), sin(ROWS * 24);
    for (float& value : cos) value = random_float();
    for (float& value : sin) value = random_float();
    const float *cosines = cos.data(), *sines = sin.data();
    const int64_t context = 0, first = 0, count = ROWS, offsets[] = {0, 2}, blocks[] = {3, 1};
    const dp::Batch batch{tokens.data(), positions.data(), positions.data(), &context, &first, &count, offsets, blocks,
                          nullptr, nullptr, &cosines, &sines, ROWS, ROWS, 1, ROWS};
    std::vector<float> results[2];
    for (int is_slow = 0; is_slow < 2; ++is_slow) {
        std::vector<float> cache(size_t(2) * BLOCKS * 2 * 2 * dp::BLOCK * 48);
        results[is_slow].resize(size_t(ROWS) * 101);
        check(dp_model_forward(model, &batch, cache.data(), BLOCKS, results[is_slow].data(), is_slow));
    }
    report(name, is_bf16 ? "bfloat16" : "float32", ROWS, results[0], results[1]);
    dp_model_free(model);
}

// Floats of many sizes to blocks; `report` hashes the bytes.
void check_rounding(const char* name, int number, int bytes) {
    constexpr int BLOCKS = 3000;
    std::vector<float> values(BLOCKS * 32);
    for (size_t k = 0; k < values.size(); ++k) values[k] = std::ldexp(random_float(), int(k / 320 % 100) - 80);
    std::vector<uint8_t> blocks(size_t(BLOCKS) * bytes);
    check(dp_round(values.data(), dp::SOURCE_F32, BLOCKS, number, blocks.data(), 3));
    const std::vector<float> as_floats(blocks.begin(), blocks.end());
    report(name, "rounded", BLOCKS, as_floats, as_floats);
}

}  // namespace

int main() {
    std::fprintf(stderr, "%s\n", dp_description());
    for (const Type& type : TYPES) check_products(type);
    for (int is_bf16 : {0, 1}) check_model("model", is_bf16, 0), check_model("mixture", is_bf16, 5);
    check_rounding("Q4_0", 2, 18), check_rounding("Q8_0", 8, 34);
    if (taken_by_threads) check("a thread of a pass took memory, and could not say that there is none");
    return is_good ? 0 : 1;
}
