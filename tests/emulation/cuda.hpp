// The part of CUDA that the kernels use, for g++: kernels run block after block on one CPU core. A
// thread is a fiber that runs until a barrier. The order of the fibers is reversed from one barrier
// to the next, so that a missing barrier changes results. Shared memory is filled with poison
// before each block.
//
// Not emulated: textures, dynamic shared memory, streams, warps that run in lockstep without a
// barrier, and arguments of kernels that are floats.
#pragma once
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("shared_memory")))
#define __constant__ static const
#define __builtin_assume(...)
#define __isGlobal(pointer) true

extern "C" unsigned char __start_shared_memory, __stop_shared_memory;

struct Dim {
    unsigned x, y, z;
};
struct uint2 {
    unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
    unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct float2 {
    float x, y;
} __attribute__((aligned(8)));
struct float4 {
    float x, y, z, w;
} __attribute__((aligned(16)));
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulation {

enum State { READY, AT_WARP, AT_BLOCK, DONE };
constexpr unsigned MOST = 1024, STACK = 256 << 10;

struct Fiber {
    State state;
    jmp_buf where;
    bool started;
    unsigned long long exchanged;  // what other threads read at a warp's barrier
};
inline Fiber fibers[MOST];
inline char* stacks;
inline jmp_buf scheduler;
inline ucontext_t birthplace;
inline unsigned current, threads, counted, count;
inline void (*body)();

inline void wait(State state)
{
    unsigned me = current;
    fibers[me].state = state;
    if (!_setjmp(fibers[me].where)) _longjmp(scheduler, 1);
}

// The body of a fiber. It never ends: after a kernel it waits for the next one.
inline void live()
{
    for (;;) {
        body();
        wait(DONE);
    }
}

inline void enter(unsigned i)
{
    current = i;
    if (_setjmp(scheduler)) return;
    Fiber& fiber = fibers[i];
    fiber.state = READY;
    if (fiber.started) _longjmp(fiber.where, 1);
    fiber.started = true;
    if (!stacks) stacks = (char*)malloc((size_t)MOST * STACK);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, live, 0);
    setcontext(&context);
}

// Release the threads of `first` … `last` that wait at `state` if none of them still runs.
inline bool release(unsigned first, unsigned last, State state)
{
    bool any = false;
    for (unsigned i = first; i < last; ++i) {
        if (fibers[i].state != state && fibers[i].state != DONE) return false;
        any |= fibers[i].state == state;
    }
    for (unsigned i = first; i < last; ++i)
        if (fibers[i].state == state) fibers[i].state = READY;
    return any;
}

inline void run_block()
{
    memset(&__start_shared_memory, 0xA5, &__stop_shared_memory - &__start_shared_memory);
    for (unsigned i = 0; i < threads; ++i) fibers[i].state = READY;
    counted = count = 0;
    for (unsigned turn = 0;; ++turn) {
        for (unsigned k = 0; k < threads; ++k) {
            unsigned i = turn % 2 ? threads - 1 - k : k;
            if (fibers[i].state == READY) enter(i);
        }
        bool moved = false;
        for (unsigned warp = 0; warp < threads; warp += 32)
            moved |= release(warp, warp + 32 < threads ? warp + 32 : threads, AT_WARP);
        if (moved) continue;
        counted = count;
        count = 0;
        if (release(0, threads, AT_BLOCK)) continue;
        for (unsigned i = 0; i < threads; ++i)
            if (fibers[i].state != DONE) {
                fprintf(stderr, "thread %u waits at a barrier that other threads never reach\n", i);
                abort();
            }
        return;
    }
}

template <class T> T exchange(T value, unsigned from)
{
    static_assert(sizeof(T) <= 8);
    unsigned me = current;
    memcpy(&fibers[me].exchanged, &value, sizeof value);
    wait(AT_WARP);
    memcpy(&value, &fibers[me / 32 * 32 + from].exchanged, sizeof value);
    wait(AT_WARP);
    return value;
}

}  // namespace emulation

struct ThreadIndex {
    struct X {
        operator unsigned() const { return emulation::current; }
    } x;
    static constexpr unsigned y = 0, z = 0;
};
static const ThreadIndex threadIdx;
inline Dim blockIdx, blockDim, gridDim;

static inline void __syncthreads() { emulation::wait(emulation::AT_BLOCK); }
static inline int __syncthreads_count(int is)
{
    emulation::count += is != 0;
    __syncthreads();
    return (int)emulation::counted;
}
static inline int __syncthreads_or(int is) { return __syncthreads_count(is) != 0; }
static inline void __syncwarp(unsigned = ~0u) { emulation::wait(emulation::AT_WARP); }
static inline void __threadfence() {}

// Shuffles of whole warps.
template <class T> T __shfl_sync(unsigned, T value, int from)
{
    return emulation::exchange(value, from & 31);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask)
{
    return emulation::exchange(value, (threadIdx.x & 31) ^ mask);
}
template <class T> T __shfl_up_sync(unsigned, T value, int step)
{
    int lane = threadIdx.x & 31;
    return emulation::exchange(value, lane < step ? lane : lane - step);
}
template <class T> T __shfl_down_sync(unsigned, T value, int step)
{
    int lane = threadIdx.x & 31;
    return emulation::exchange(value, lane + step > 31 ? lane : lane + step);
}
// Replaces the function of kernels/headers/scan.cuh, which is inline PTX.
static inline void add_lower(unsigned& value, int step)
{
    unsigned lower = __shfl_up_sync(~0u, value, step);
    if ((int)(threadIdx.x & 31) >= step) value += lower;
}
static inline unsigned __ballot_sync(unsigned, int is)
{
    unsigned bits = 0, me = emulation::current / 32 * 32;
    emulation::fibers[emulation::current].exchanged = is != 0;
    __syncwarp();
    for (unsigned i = 0; i < 32 && me + i < emulation::threads; ++i)
        if (emulation::fibers[me + i].state != emulation::DONE)
            bits |= (unsigned)emulation::fibers[me + i].exchanged << i;
    __syncwarp();
    return bits;
}

// Replaces the function of kernels/headers/mma.cuh, with the layout of PTX's mma.m16n8k32.
#define EMULATED
static inline void multiply_add(const uint4& left, const unsigned* right, unsigned* sums)
{
    static unsigned lefts[emulation::MOST][4], rights[emulation::MOST][2];
    unsigned me = emulation::current, first = me / 32 * 32, row = me % 32 / 4, column = me % 4 * 2;
    memcpy(lefts[me], &left, sizeof left);
    memcpy(rights[me], right, sizeof rights[me]);
    __syncwarp();
    for (unsigned k = 0; k < 32; ++k) {
        unsigned lane = k % 16 / 4, shift = k % 4 * 8, half = k / 16;
        for (unsigned i = 0; i < 4; ++i) {
            unsigned a = lefts[first + row * 4 + lane][half * 2 + i / 2] >> shift & 255;
            unsigned b = rights[first + (column + i % 2) * 4 + lane][half] >> shift & 255;
            sums[i] += a * b;
        }
    }
    __syncwarp();
}

template <class T> T emulated_atomic(T* at, T made)
{
    T before = *at;
    *at = made;
    return before;
}
template <class T> T atomicAdd(T* at, T value) { return emulated_atomic(at, (T)(*at + value)); }
template <class T> T atomicMin(T* at, T value)
{
    return emulated_atomic(at, value < *at ? value : *at);
}
template <class T> T atomicMax(T* at, T value)
{
    return emulated_atomic(at, value > *at ? value : *at);
}
template <class T> T atomicOr(T* at, T value) { return emulated_atomic(at, (T)(*at | value)); }

template <class T> T __ldg(const T* at) { return *at; }
template <class T> void __stcg(T* at, T value) { *at = value; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }
static inline unsigned long long min(unsigned long long a, unsigned long long b)
{
    return a < b ? a : b;
}
static inline double min(double a, double b) { return a < b ? a : b; }
static inline double max(double a, double b) { return a > b ? a : b; }

static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned made = 0;
    for (int i = 0; i < 4; ++i)
        made |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return made;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift)
{
    return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum)
{
    for (int i = 0; i < 32; i += 8) sum += (a >> i & 255) * (b >> i & 255);
    return sum;
}
static inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned sum)
{
    return sum + (a & 0xFFFF) * (b & 255) + (a >> 16) * (b >> 8 & 255);
}
static inline unsigned __dp2a_hi(unsigned a, unsigned b, unsigned sum)
{
    return __dp2a_lo(a, b >> 16, sum);
}
static inline unsigned __vminu2(unsigned a, unsigned b)
{
    return min(a & 0xFFFF, b & 0xFFFF) | min(a & 0xFFFF0000, b & 0xFFFF0000);
}
static inline unsigned __vmaxu2(unsigned a, unsigned b)
{
    return max(a & 0xFFFF, b & 0xFFFF) | max(a & 0xFFFF0000, b & 0xFFFF0000);
}
static inline unsigned __vminu4(unsigned a, unsigned b)
{
    unsigned made = 0;
    for (int i = 0; i < 32; i += 8) made |= min(a >> i & 255, b >> i & 255) << i;
    return made;
}
static inline unsigned __vabsdiffu4(unsigned a, unsigned b)
{
    unsigned made = 0;
    for (int i = 0; i < 32; i += 8)
        made |= (unsigned)abs((int)(a >> i & 255) - (int)(b >> i & 255)) << i;
    return made;
}
static inline unsigned __vsubus4(unsigned a, unsigned b)
{
    unsigned made = 0;
    for (int i = 0; i < 32; i += 8) made |= ((a >> i & 255) - min(a >> i & 255, b >> i & 255)) << i;
    return made;
}
static inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b)
{
    unsigned made = 0;
    for (int i = 0; i < 32; i += 16)
        made |= max(min((int)(short)(a >> i), (int)(short)(b >> i)), 0) << i;
    return made;
}
static inline unsigned __vsadu4(unsigned a, unsigned b)
{
    unsigned sum = 0;
    for (int i = 0; i < 32; i += 8) sum += abs((int)(a >> i & 255) - (int)(b >> i & 255));
    return sum;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned __int128)a * b >> 64;
}
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __clz(int a) { return a ? __builtin_clz(a) : 32; }
static inline int __ffs(int a) { return __builtin_ffs(a); }

template <class To, class From> To emulated_bits(From from)
{
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned a) { return emulated_bits<float>(a); }
static inline unsigned __float_as_uint(float a) { return emulated_bits<unsigned>(a); }
static inline float __int_as_float(int a) { return emulated_bits<float>(a); }
static inline int __float_as_int(float a) { return emulated_bits<int>(a); }
static inline long long __double_as_longlong(double a) { return emulated_bits<long long>(a); }

// The operators of C round as these functions do, because contraction is switched off.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __ull2float_rn(unsigned long long a) { return (float)a; }
static inline float __int2float_rn(int a) { return (float)a; }
static inline float __uint2float_rn(unsigned a) { return (float)a; }
static inline int __float2int_rn(float a) { return (int)nearbyintf(a); }
static inline int __float2int_rd(float a) { return (int)floorf(a); }
static inline int __float2int_rz(float a) { return (int)a; }
static inline unsigned __float2uint_rz(float a) { return (unsigned)a; }
static inline float rsqrtf(float a) { return 1 / sqrtf(a); }
// Round towards zero. The sums and products of the kernels are exact in doubles.
static inline float emulated_rz(double exact)
{
    float near = (float)exact;
    return fabs((double)near) > fabs(exact) ? nextafterf(near, 0.0f) : near;
}
static inline float __fadd_rz(float a, float b) { return emulated_rz((double)a + b); }
static inline float __fmaf_rz(float a, float b, float c) { return emulated_rz((double)a * b + c); }

// Run a kernel whose arguments are pointers and integers; these are passed alike in any prototype.
extern "C" void emulate(void* kernel, unsigned blocks, unsigned threads,
    const unsigned long long* arguments, unsigned n)
{
    typedef unsigned long long A;
    static void (*call)(A, A, A, A, A, A, A, A, A, A, A, A);
    static A a[12];
    if (n > 12 || threads > emulation::MOST) abort();
    for (unsigned i = 0; i < 12; ++i) a[i] = i < n ? arguments[i] : 0;
    call = (decltype(call))kernel;
    emulation::body = [] {
        call(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    };
    emulation::threads = threads;
    blockDim = {threads, 1, 1};
    gridDim = {blocks, 1, 1};
    for (unsigned block = 0; block < blocks; ++block) {
        blockIdx = {block, 0, 0};
        emulation::run_block();
    }
}
