// Memory of the library: one arena for a model's packed weights, growing buffers for activations.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

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

// Read-mostly memory in huge pages where the system grants them: streaming weights then costs few TLB misses. It
// grows by whole chunks, of which the system provides what is touched.
class Arena {
  public:
    Arena() = default;
    ~Arena() {
        for (char* chunk : chunks_) std::free(chunk);
    }
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    void* take(size_t bytes) {
        bytes = round_up(bytes, LINE_BYTES) + LINE_BYTES;  // reading ahead may reach one line beyond the end
        if (bytes > left_) {
            left_ = round_up(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES, HUGE_PAGE_BYTES);
            next_ = static_cast<char*>(allocate(left_, HUGE_PAGE_BYTES));
            chunks_.push_back(next_);
            advise_huge_pages(next_, left_);
        }
        void* memory = next_;
        next_ += bytes, left_ -= bytes;
        return memory;
    }

  private:
    static constexpr size_t CHUNK_BYTES = size_t(64) << 20;
    std::vector<char*> chunks_;
    char* next_ = nullptr;
    size_t left_ = 0;
};

// Plain elements, zero at first, that grow in number and never shrink; their contents are not kept when they grow.
template <class T> class Buffer {
  public:
    ~Buffer() { std::free(data_); }
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* at_least(size_t count) {
        if (count > capacity_) {
            T* grown = static_cast<T*>(allocate(count * sizeof(T), LINE_BYTES));
            std::free(data_);
            data_ = grown;
            capacity_ = count;
            std::memset(static_cast<void*>(data_), 0, count * sizeof(T));
        }
        return data_;
    }

  private:
    T* data_ = nullptr;
    size_t capacity_ = 0;
};

}  // namespace dp
