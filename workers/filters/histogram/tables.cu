// What follows from histograms: Otsu's threshold, and the tables of autocontrast and equalize. A
// block takes an image, a thread a level. The order of all operations is the specification's.
#include "filters/histogram/histogram.cuh"
#include "kernels/headers/common.cuh"
#include "kernels/headers/lines.cuh"

// Pillow's ImageOps.autocontrast: `cut` samples are lost at either end.
extern "C" __global__ void __launch_bounds__(256)
    autocontrast_tables(const Item* items, const u32* starts, int n)
{
    __shared__ u32 totals[8];
    int block, level = threadIdx.x;
    Item item = find_item(items, starts, n, block);
    HistogramData& of = *global<HistogramData>(item.data);
    u32 cut = of.parameters[0], by_luma = of.parameters[1], pixels = item.width * item.height;
    for (int c = 0; c < min(item.channels, 3); ++c) {
        u32 own = of.counts[by_luma ? 0 : c][level], upto = cumulative_count(own, totals);
        int low = __syncthreads_count(upto <= cut);
        int high = __syncthreads_count(upto - own < pixels - cut) - 1;
        double scale = __ddiv_rn(255.0, high - low);
        int tone = (int)__dadd_rn(__dmul_rn(level, scale), __dmul_rn(-low, scale));
        of.tables[c][level] = (u8)(high <= low ? level : min(max(tone, 0), 255));
    }
}
LAUNCHED_BY_BLOCKS(autocontrast_tables, 1);

// Pillow's ImageOps.equalize.
extern "C" __global__ void __launch_bounds__(256)
    equalize_tables(const Item* items, const u32* starts, int n)
{
    __shared__ u32 totals[8];
    int block, level = threadIdx.x;
    Item item = find_item(items, starts, n, block);
    HistogramData& of = *global<HistogramData>(item.data);
    u32 pixels = item.width * item.height;
    for (int c = 0; c < min(item.channels, 3); ++c) {
        u32 own = of.counts[c][level], upto = cumulative_count(own, totals);
        int lightest = __syncthreads_count(upto - own < pixels) - 1;
        u32 step = (pixels - of.counts[c][lightest]) / 255;
        of.tables[c][level] = (u8)(step ? min((step / 2 + upto - own) / step, 255u) : level);
    }
}
LAUNCHED_BY_BLOCKS(equalize_tables, 1);

struct Tables {
    const u8* tables;

    __device__ __forceinline__ void operator()(const u32* colour, u32* made) const
    {
        for (int c = 0; c < 3; ++c) made[c] = tables[256 * c + colour[c]];
    }
};

// Map every colour by its own table.
extern "C" __global__ void __launch_bounds__(256)
    apply_tables(const Item* items, const u32* starts, int n)
{
    __shared__ u32 tables[192];
    int block;
    Item item = find_item(items, starts, n, block);
    const u32* from = (const u32*)global<const HistogramData>(item.data)->tables;
    if (threadIdx.x < 192) tables[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    Tables map = {(const u8*)tables};
    if (item.channels == 1) map_samples(item, block, map.tables);
    else if (item.channels == 3) map_pixels<3>(item, block, map);
    else map_pixels<4>(item, block, map);
}
LAUNCHED_BY_LINES(apply_tables, LINE);

constexpr double EPSILON = 1.1920928955078125e-07;  // FLT_EPSILON

// Otsu's threshold as cv2.THRESH_OTSU computes it: the level that maximises the variance between
// both groups of lumas. One thread computes the running means, because their roundings depend on
// the order; all threads compute the variances.
extern "C" __global__ void __launch_bounds__(256)
    otsu_threshold(const Item* items, const u32* starts, int n)
{
    __shared__ double share[256], first_share[256], first_mean[256];
    __shared__ u64 sum, best;
    __shared__ u32 value;
    int block, level = threadIdx.x;
    Item item = find_item(items, starts, n, block);
    HistogramData& of = *global<HistogramData>(item.data);
    u32 own = of.counts[0][level];
    double scale = __ddiv_rn(1.0, (double)item.width * item.height);
    share[level] = __dmul_rn(own, scale);
    if (level == 0) sum = best = value = 0;
    __syncthreads();
    atomicAdd(&sum, (u64)own * level);
    if (level == 0) {
        double mean = 0, all = 0;
        for (int i = 0; i < 256; ++i) {
            mean = __dmul_rn(mean, all);
            all = __dadd_rn(all, share[i]);
            if (min(all, 1 - all) >= EPSILON && max(all, 1 - all) <= 1 - EPSILON)
                mean = __ddiv_rn(__dadd_rn(mean, __dmul_rn(i, share[i])), all);
            first_share[i] = all, first_mean[i] = mean;
        }
        value = 256;
    }
    __syncthreads();
    double q = first_share[level], rest = 1 - q, mean = first_mean[level], between = 0;
    if (min(q, rest) >= EPSILON && max(q, rest) <= 1 - EPSILON) {
        double whole = __dmul_rn((double)sum, scale);
        double apart = mean - __ddiv_rn(whole - __dmul_rn(q, mean), rest);
        between = __dmul_rn(__dmul_rn(__dmul_rn(q, rest), apart), apart);
    }
    // The bits of positive doubles have the order of their values.
    u64 bits = __double_as_longlong(between);
    atomicMax(&best, bits);
    __syncthreads();
    if (bits == best) atomicMin(&value, (u32)level);
    __syncthreads();
    if (level == 0) of.parameters[0] = best ? value : 0, of.parameters[1] = 255;
}
LAUNCHED_BY_BLOCKS(otsu_threshold, 1);
