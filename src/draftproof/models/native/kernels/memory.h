// Memory of the library: one arena for a model's packed weights, growing buffers for activations.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace dp {

constexpr size_t LINE_BYTES = 64;
constexpr size_t HUGE_PAGE_BYTES = size_t(2) << 20;

inline size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

inline void* allocate(size_t bytes, size_t alignment) {
    void* memory = std::aligned_alloc(alignment, round_up(bytes ? bytes : 1, alignment));
    if (!memory) throw std::bad_alloc();
    return memory;
}

// Asks for huge pages in [start, start + bytes), as far as whole ones lie in it. Advice only: without it pages are small.
inline void advise_huge_pages(void* start, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    const size_t from = round_up(reinterpret_cast<size_t>(start), HUGE_PAGE_BYTES);
    const size_t to = (reinterpret_cast<size_t>(start) + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
    (void)start, (void)bytes;
#endif
}

// Read-mostly memory in huge pages where the system grants them: streaming weights then costs few TLB misses.
class Arena {
  public:
    explicit Arena(size_t bytes) : bytes_(round_up(bytes, HUGE_PAGE_BYTES)) {
        start_ = static_cast<char*>(allocate(bytes_, HUGE_PAGE_BYTES));
        advise_huge_pages(start_, bytes_);
    }
    ~Arena() { std::free(start_); }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    void* take(size_t bytes) {
        if (used_ + round_up(bytes, LINE_BYTES) > bytes_) throw std::bad_alloc();
        void* memory = start_ + used_;
        used_ += round_up(bytes, LINE_BYTES);
        return memory;
    }

  private:
    size_t bytes_, used_ = 0;
    char* start_;
};

// Floats that grow and never shrink; their contents are not kept when they grow.
class Buffer {
  public:
    ~Buffer() { std::free(data_); }
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    float* at_least(size_t count) {
        if (count > capacity_) {
            float* grown = static_cast<float*>(allocate(count * sizeof(float), LINE_BYTES));
            std::free(data_);
            data_ = grown;
            capacity_ = count;
            for (size_t index = 0; index < count; ++index) data_[index] = 0.0f;
        }
        return data_;
    }

  private:
    float* data_ = nullptr;
    size_t capacity_ = 0;
};

}  // namespace dp
