// A pool of threads that run one function together and meet at barriers. Knows nothing of models.
//
// One pool serves the process; a job takes the pool's mutex, so calls from several threads queue up. Waiting spins
// for a few tens of microseconds and then sleeps, so that a machine with more threads than cores still moves.
// After fork() the child starts with an empty pool.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace dp {

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// A number that one thread sets and others wait to see changed.
class Gate {
  public:
    uint32_t value() const { return value_.load(std::memory_order_acquire); }

    void set(uint32_t value) {
        value_.store(value, std::memory_order_seq_cst);
        if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
        { std::lock_guard<std::mutex> lock(mutex_); }
        changed_.notify_all();
    }

    void wait_while(uint32_t old) {
        for (int spin = 0; spin < SPINS; ++spin) {
            if (value() != old) return;
            pause_cpu();
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        changed_.wait(lock, [&] { return value_.load(std::memory_order_seq_cst) != old; });
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }

  private:
    static constexpr int SPINS = 2000;
    std::atomic<uint32_t> value_{0};
    std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
};

// The threads of one job: a barrier and a counter from which they take ranges of work.
class Team {
  public:
    explicit Team(int num_threads) : num_threads(num_threads) {}
    const int num_threads;

    void barrier() {
        if (num_threads == 1) {
            taken_.store(0, std::memory_order_relaxed);
            return;
        }
        const uint32_t generation = passed_.value();
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads) {
            arrived_.store(0, std::memory_order_relaxed);
            taken_.store(0, std::memory_order_relaxed);
            passed_.set(generation + 1);
        } else {
            passed_.wait_while(generation);
        }
    }

    // Calls work(begin, end) until 0..total is used up: large ranges first, smaller ones towards the end, so that
    // memory is read in long runs and the threads still finish together. A barrier must follow before the next.
    template <class F> void share(int total, F work) {
        int begin = taken_.load(std::memory_order_relaxed);
        while (begin < total) {
            int size = (total - begin) / (2 * num_threads);
            if (size < 1) size = 1;
            if (num_threads == 1) size = total - begin;
            if (!taken_.compare_exchange_weak(begin, begin + size, std::memory_order_relaxed)) continue;
            work(begin, begin + size);
            begin = taken_.load(std::memory_order_relaxed);
        }
    }

  private:
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<int> taken_{0};
    alignas(64) Gate passed_;
};

class Pool {
  public:
    // Runs function(team, thread) on num_threads threads, this one included, and returns when all are done.
    template <class F> void run(int num_threads, F& function) {
        std::lock_guard<std::mutex> lock(mutex_);
        while (int(workers_.size()) < num_threads - 1) workers_.push_back(new Worker());
        Team team(num_threads);
        for (int thread = 1; thread < num_threads; ++thread) {
            workers_[thread - 1]->start([](void* f, Team& t, int id) { (*static_cast<F*>(f))(t, id); }, &function,
                                        team, thread);
        }
        function(team, 0);
        for (int thread = 1; thread < num_threads; ++thread) workers_[thread - 1]->wait();
    }

    static Pool& instance() {
        static Pool* pool = [] {
#if defined(__unix__) || defined(__APPLE__)
            pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                           [] { new (&instance()) Pool(); });  // the child has no workers: forget the parent's
#endif
            return new Pool();  // never destroyed: its threads may outlive static destructors
        }();
        return *pool;
    }

  private:
    typedef void (*Job)(void*, Team&, int);

    class Worker {
      public:
        Worker() { std::thread([this] { loop(); }).detach(); }

        void start(Job job, void* argument, Team& team, int thread) {
            job_ = job, argument_ = argument, team_ = &team, thread_ = thread;
            started_.set(started_.value() + 1);
        }
        void wait() {
            const uint32_t target = started_.value();
            for (uint32_t done = finished_.value(); done != target; done = finished_.value()) {
                finished_.wait_while(done);
            }
        }

      private:
        [[noreturn]] void loop() {
            for (uint32_t seen = 0;; ++seen) {
                started_.wait_while(seen);
                job_(argument_, *team_, thread_);
                finished_.set(seen + 1);
            }
        }
        Job job_ = nullptr;
        void* argument_ = nullptr;
        Team* team_ = nullptr;
        int thread_ = 0;
        Gate started_, finished_;
    };

    std::mutex mutex_;
    std::vector<Worker*> workers_;
};

}  // namespace dp
