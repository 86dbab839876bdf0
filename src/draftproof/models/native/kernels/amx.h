// Intel's matrix tiles (AMX): whether this process may use them, and the instructions by name.
//
// A tile is up to sixteen rows of 64 bytes. `dst += A x B` takes rows of activations from A and, from B, sixteen
// channels whose inputs lie four bytes (int8) or a pair (bfloat16) at a time: just as `formats.h` and `matrix.h` hold
// them. Linux lends the tiles' registers to processes that ask. Knows no weights.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "simd.h"

#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__AVX512VNNI__) && \
    defined(__linux__) && DP_WIDE == 16 && !defined(DP_NO_INTRINSICS)
#define DP_HAS_AMX 1
#include <sys/syscall.h>
#include <unistd.h>
#else
#define DP_HAS_AMX 0
#endif

namespace dp {

constexpr int AMX_ROWS = 16;       // of a tile
constexpr int AMX_ROW_BYTES = 64;

enum class Amx { absent, in_use, switched_off, refused };

// What holds for the whole life of the process: results of bfloat16 weights depend on it.
inline Amx amx_state() {
#if DP_HAS_AMX
    static const Amx state = [] {
        constexpr int ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
        const char* wanted = std::getenv("DRAFTPROOF_AMX");
        if (wanted && std::strcmp(wanted, "0") == 0) return Amx::switched_off;
        return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ? Amx::refused : Amx::in_use;
    }();
    return state;
#else
    return Amx::absent;
#endif
}

inline bool has_amx() { return amx_state() == Amx::in_use; }

#if DP_HAS_AMX

// Shapes of the eight tiles, loaded for the calling thread as long as this lives; released after that, so that the
// system need not save them. Tiles are zero at first.
class Tiles {
  public:
    struct Shape { int rows, bytes; };

    explicit Tiles(const Shape (&shapes)[8]) {
        struct alignas(64) Config {
            uint8_t palette, start_row, reserved[14];
            uint16_t bytes[16];
            uint8_t rows[16];
        } config = {};
        config.palette = 1;
        for (int tile = 0; tile < 8; ++tile) {
            config.rows[tile] = uint8_t(shapes[tile].rows);
            config.bytes[tile] = uint16_t(shapes[tile].bytes);
        }
        asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
    }
    ~Tiles() { asm volatile("tilerelease" : : : "memory"); }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;
};

template <int Tile> [[gnu::always_inline]] inline void tile_zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile> [[gnu::always_inline]] inline void tile_load(const void* from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile> [[gnu::always_inline]] inline void tile_store(void* to, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
}
// Signed bytes, four products a lane, exact.
template <int Sum, int A, int B> [[gnu::always_inline]] inline void tile_dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
}
// Pairs of bfloat16: see matrix.h for the order of the sums.
template <int Sum, int A, int B> [[gnu::always_inline]] inline void tile_dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
}

#endif

}  // namespace dp
