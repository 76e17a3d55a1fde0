// Filters of single pixels: tables, and blends of a colour with its luma.
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

extern "C" __global__ void __launch_bounds__(256)
    apply_table(const Item* items, const u32* starts, int n)
{
    __shared__ u8 table[256];
    int block;
    Item item = find_item(items, starts, n, block);
    table[threadIdx.x] = global<const u8>(item.data)[threadIdx.x];
    __syncthreads();
    map_samples(item, block, table);
}
LAUNCHED_BY_LINES(apply_table, LINE);

// A blend of a pixel's colours with its luma; `from_grey` states that the luma is the base.
struct GreyBlend {
    float factor;
    bool from_grey;

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        float grey = as_float(luma(colour[0], colour[1], colour[2]));
        for (int c = 0; c < 3; ++c) {
            float level = as_float(colour[c]);
            made[c] = blend(from_grey ? grey : level, from_grey ? level : grey, factor);
        }
    }
};

__device__ __forceinline__ void blend_with_grey(const Item& item, int block, bool from_grey)
{
    GreyBlend fade = {*global<const float>(item.data), from_grey};
    if (item.channels == 3) map_pixels<3>(item, block, fade);
    else if (item.channels == 4) map_pixels<4>(item, block, fade);
    else copy_line(item, block);  // grey is its own luma
}

extern "C" __global__ void __launch_bounds__(256)
    grayscale(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    blend_with_grey(item, block, false);
}
LAUNCHED_BY_LINES(grayscale, LINE);

extern "C" __global__ void __launch_bounds__(256)
    saturation(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = find_item(items, starts, n, block);
    blend_with_grey(item, block, true);
}
LAUNCHED_BY_LINES(saturation, LINE);
