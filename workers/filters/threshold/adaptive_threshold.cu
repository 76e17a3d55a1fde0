// Adaptive threshold: a pixel becomes 255 if its luma is above the mean around it, less a constant.
#include "filters/arithmetic/box.cuh"
#include "filters/arithmetic/grey_plane.cuh"
#include "filters/separable/gaussian_columns.cuh"
#include "filters/separable/gaussian_rows.cuh"
#include "filters/separable/separable.cuh"
#include "filters/separable/separable_store.cuh"
#include "kernels/headers/common.cuh"

struct Adaptive {
    Box box;       // of the unweighted mean
    int gaussian;  // whether the mean is weighted, in Q16 along both axes
    int ceiling;   // by how much the mean is lowered, rounded up
    int reserved[2];
    Gaussian weights;
};

extern "C" __global__ void __launch_bounds__(256)
    adaptive_rows(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 planes[ROWS_SHARED / 16];
    __shared__ u32 weights[400];
    int block;
    Item item = with_weights(grey_of(find_item(items, starts, n, block)));
    Tile tile = tile_of(item, block, ROWS_WIDTH, ROWS_HEIGHT);
    const Gaussian& of = gaussian_of(item);
    for (int i = threadIdx.x; i < of.across; i += THREADS) weights[i] = of.weights[i];
    blur_rows<1, 1, u8, u32, u32, 0>(item, tile, (u8*)planes, weights);
}
LAUNCHED_BY_TILES(adaptive_rows, ROWS_WIDTH, ROWS_HEIGHT);

__device__ __forceinline__ u32 mean_around(const Adaptive& of, u64 sum)
{
    if (!of.gaussian) return mean_of(of.box, (u32)sum);
    return (u32)((sum + 0x7FFFFFFF + (sum >> 32 & 1)) >> 32);  // halves are rounded to even
}

template <bool INSIDE>
__device__ __forceinline__ void adaptive_tile(
    const Item& item, const Tile& tile, const u32* weights, u8* out)
{
    constexpr int R = 4;
    const Adaptive& of = *global<const Adaptive>(item.data);
    Item grey = with_weights(grey_of(item));
    int channels = min(item.channels, 3);
    for (int i = threadIdx.x; i < COLUMNS_WIDTH * (COLUMNS_HEIGHT / R); i += THREADS) {
        int x = i % COLUMNS_WIDTH, row = i / COLUMNS_WIDTH * R;
        if (x >= tile.width || row >= tile.height) continue;
        u64 sums[R];
        blur_column<R, INSIDE, u64, u32>(grey, 1, 0, tile.x + x, tile.y + row, weights, sums);
#pragma unroll
        for (int o = 0; o < R; ++o) {
            int level = source_row(grey, tile.y + row + o)[tile.x + x];
            u8 tone = level - (int)mean_around(of, sums[o]) + of.ceiling > 0 ? 255 : 0;
            for (int c = 0; c < channels; ++c)
                out[((row + o) * COLUMNS_WIDTH + x) * channels + c] = tone;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 3)
    adaptive_columns(const Item* items, const u32* starts, int n)
{
    __shared__ u32 weights[400];
    __shared__ uint4 out[COLUMNS_WIDTH * COLUMNS_HEIGHT / 4 + 1];
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = tile_of(item, block, COLUMNS_WIDTH, COLUMNS_HEIGHT);
    const Gaussian& of = global<const Adaptive>(item.data)->weights;
    for (int i = threadIdx.x; i < of.down; i += THREADS) weights[i] = of.weights[of.across + i];
    __syncthreads();
    bool inside = tile.y >= of.down && tile.y + COLUMNS_HEIGHT + of.down <= item.height;
    if (inside) adaptive_tile<true>(item, tile, weights, (u8*)out);
    else adaptive_tile<false>(item, tile, weights, (u8*)out);
    __syncthreads();
    item.channels = min(item.channels, 3);
    store_tile_of<COLUMNS_WIDTH>(item, tile, (const u8*)out);
}
LAUNCHED_BY_TILES(adaptive_columns, COLUMNS_WIDTH, COLUMNS_HEIGHT);

// The rule for the unweighted mean of a small window. Sums are 2 · sum + area - 1 and the inverse
// is 2**31 / area, rounded up, so that the upper word of the product is the rounded mean.
struct MeanThreshold {
    static constexpr int ACROSS = 1, DOWN = 1;
    static constexpr u32 HALF = 0, KEPT = 0x5140;
    u32 last, inverse;
    int ceiling;

    __device__ __forceinline__ u32 half() const { return last; }

    __device__ __forceinline__ u32 operator()(const u32* sums, u32 levels) const
    {
        u32 tones = 0;
#pragma unroll
        for (int k = 0; k < 4; ++k)
            if ((int)byte_of(levels, k) - (int)__umulhi(sums[k], inverse) + ceiling > 0)
                tones |= 255u << 8 * k;
        return tones;
    }
};

template <int REACH>
__device__ __forceinline__ void mean_threshold_tile(
    const Item* items, const u32* starts, int n, u32* plane, u32* buffer)
{
    int block;
    Item item = find_item(items, starts, n, block);
    Tile tile = separable_tile_of<REACH>(item, block);
    const u32* of = separable_of(item).parameters;
    MeanThreshold judged = {of[0], of[1], (int)of[2]};
    stage_grey<REACH>(item, tile, plane);
    item.channels = min(item.channels, 3);
    if (item.channels == 1) filter_grey<REACH, 1>(item, tile, judged, plane, buffer);
    else filter_grey<REACH, 3>(item, tile, judged, plane, buffer);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    adaptive_reach_8(const Item* items, const u32* starts, int n)
{
    __shared__ u32 plane[SeparableTile<8>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    mean_threshold_tile<8>(items, starts, n, plane, (u32*)buffer);
}
LAUNCHED_BY_TILES(adaptive_reach_8, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_8);

extern "C" __global__ void __launch_bounds__(256, 4)
    adaptive_reach_24(const Item* items, const u32* starts, int n)
{
    __shared__ u32 plane[SeparableTile<24>::PLANE];
    __shared__ uint4 buffer[STORE_WORDS / 4];
    mean_threshold_tile<24>(items, starts, n, plane, (u32*)buffer);
}
LAUNCHED_BY_TILES(adaptive_reach_24, SEPARABLE_WIDTH, SEPARABLE_HEIGHT_24);
