// How often every level occurs, and sums over the threads before: integers, in any order the same.

// Adds what the lane so many below has, if there is one.
#ifndef EMULATED
__device__ __forceinline__ void add_lower(u32& value, int step)
{
    asm volatile(
        "{ .reg .pred within; .reg .u32 lower; "
        "shfl.sync.up.b32 lower|within, %0, %1, 0, -1; @within add.u32 %0, lower, %0; }"
        : "+r"(value) : "r"(step));
}
#endif

// The sum of the lanes of a warp up to this one.
template <class T> __device__ __forceinline__ T scan_warp(T value)
{
    for (int step = 1; step < 32; step *= 2) {
        T before = __shfl_up_sync(~0u, value, step);
        if (threadIdx.x % 32 >= step) value += before;
    }
    return value;
}

// The sum of all warps before this one and of the lanes before this one.
template <class T> __device__ __forceinline__ T before_thread(T own, T upto, const T* totals)
{
    T before = upto - own;
    for (int warp = 0; warp < (int)threadIdx.x / 32; ++warp) before += totals[warp];
    return before;
}

// The head of the data of filters that count; `parameters` are the filter's own.
struct Counted {
    u32 parameters[4];
    u32 counts[3][256];  // uploaded as 0
    u8 tables[3][256];   // what they become; not all filters have them
};

constexpr u32 COUNTED_LINE = 8 * LINE;  // samples a block

// Counters lie eight times in shared memory, side by side, for each lane of eight: of a plain image
// four lanes meet at a counter, not 32.
struct Counters {
    u32* bins;

    __device__ __forceinline__ void operator()(int plane, u32 level) const
    {
        atomicAdd(&bins[(plane * 256 + level) * 8 + threadIdx.x % 8], 1u);
    }

    __device__ __forceinline__ void clear(int levels) const
    {
        for (int i = threadIdx.x; i < 2 * levels; i += THREADS) ((uint4*)bins)[i] = make_uint4(0, 0, 0, 0);
    }

    // Of a level of all planes.
    __device__ __forceinline__ u32 total(int level) const
    {
        uint4 a = ((uint4*)bins)[2 * level], b = ((uint4*)bins)[2 * level + 1];
        return a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
    }
};

template <int C, bool LUMA>
__device__ __forceinline__ void count_pixel(const u32* colour, const Counters& counters)
{
    if constexpr (LUMA && C > 1) {
        counters(0, luma(colour[0], colour[1], colour[2]));
    } else {
        for (int c = 0; c < min(C, 3); ++c) counters(c, colour[c]);
    }
}

template <int C, bool LUMA>
__device__ __forceinline__ void count_line(const Item& item, int block, const Counters& counters)
{
    u32 total = samples_of(item), end = min(total, (block + 1) * COUNTED_LINE);
    const u8* src = global<const u8>(item.src);
    for (u32 at = block * COUNTED_LINE + 48 * threadIdx.x; at < end; at += LINE) {
        if (at + 48 <= total) {
            u32 words[12], colour[C];
            for (int i = 0; i < 3; ++i) load16(src + at + 16 * i, words + 4 * i);
#pragma unroll
            for (int p = 0; p < 48; p += C) {
                for (int c = 0; c < C; ++c) colour[c] = byte_of(words[(p + c) / 4], (p + c) % 4);
                count_pixel<C, LUMA>(colour, counters);
            }
        } else {
            for (u32 s = at; s < total; s += C) {
                u32 colour[C];
                for (int c = 0; c < C; ++c) colour[c] = src[s + c];
                count_pixel<C, LUMA>(colour, counters);
            }
        }
    }
}

template <bool LUMA>
__device__ __forceinline__ void count_block(const Item& item, int block, uint4* bins)
{
    int levels = LUMA || item.channels == 1 ? 256 : 768;
    Counters counters = {(u32*)bins};
    counters.clear(levels);
    __syncthreads();
    if (item.channels == 1) count_line<1, LUMA>(item, block, counters);
    else if (item.channels == 3) count_line<3, LUMA>(item, block, counters);
    else count_line<4, LUMA>(item, block, counters);
    __syncthreads();
    u32* counts = global<Counted>(item.data)->counts[0];
    for (int i = threadIdx.x; i < levels; i += THREADS) {
        u32 count = counters.total(i);
        if (count) atomicAdd(&counts[i], count);
    }
}

// Of every colour for itself.
extern "C" __global__ void __launch_bounds__(256)
count_levels(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 bins[768 * 2];
    int block;
    Item item = owner(items, starts, n, block);
    count_block<false>(item, block, bins);
}

extern "C" __global__ void __launch_bounds__(256)
count_lumas(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 bins[256 * 2];
    int block;
    Item item = owner(items, starts, n, block);
    count_block<true>(item, block, bins);
}
