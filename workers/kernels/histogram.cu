// Samples of any rank in their squares, and medians of those from 9 to 13: every lane slides a
// histogram down a column of samples, and the level of that rank moves a few levels a row. Three warps of a block work, for three times 16 KiB are 48.

constexpr int SLIDE_WIDTH = 96, SLIDE_HEIGHT = 128, SLIDERS = 3;

// 256 bins of 16 bits, a word for a level and the one 128 above, the words of 32 lanes side by side:
// lanes never share a bank. Additions are atomic not because anybody else was there, but because
// nobody waits for them.
struct Histogram {
    u32* bins;
    int median, below;  // a level, and how many samples are below it

    __device__ __forceinline__ int count(int level) const
    {
        return bins[(level & 127) * 32] >> (level >> 7) * 16 & 0xFFFF;
    }

    __device__ __forceinline__ void add(int level)
    {
        atomicAdd(&bins[(level & 127) * 32], 1u + 65535u * (level >> 7));
        below += level < median;
    }

    __device__ __forceinline__ void remove(int level)
    {
        atomicAdd(&bins[(level & 127) * 32], 0u - 1u - 65535u * (level >> 7));
        below -= level < median;
    }

    // Move to the level with at most `rank` samples below it and more than `rank` with its own.
    __device__ __forceinline__ int settle(int rank)
    {
        while (below > rank) below -= count(--median);
        for (int own = count(median); below + own <= rank; own = count(median)) {
            below += own;
            ++median;
        }
        return median;
    }
};

// The offset of the pixel after x in its row: the last one's, and any before the first, replicate.
template <bool INSIDE>
__device__ __forceinline__ int offset_after(int offset, int x, int width, int channels)
{
    return INSIDE || (x >= 0 && x < width - 1) ? offset + channels : offset;
}

// One column of samples; INSIDE says that no window leaves the image on the left or right, C says how
// many channels there are, 0 that only the image knows.
template <int C, bool INSIDE>
__device__ __forceinline__ void slide(
    const Item& item, const Tile& tile, int column, u32* bins, int size, int rank)
{
    int c = C ? C : item.channels, x = tile.x + column / c, left = x - size / 2;
    i64 stride = (i64)item.width * c;
    const u8* src = global<const u8>(item.src) + column % c;
    int start = clamped(left, item.width) * c;
    Histogram histogram = {bins, 128, 0};
#pragma unroll 8
    for (int i = 0; i < 128; ++i) bins[i * 32] = 0;
    for (int row = -(size / 2); row <= size / 2; ++row) {
        const u8* line = src + clamped(tile.y + row, item.height) * stride;
        for (int i = 0, at = start; i < size; at = offset_after<INSIDE>(at, left + i++, item.width, c))
            histogram.add(line[at]);
    }
    u8* dst = global<u8>(item.dst) + tile.y * stride + x * c + column % c;
    for (int row = 0;; ++row, dst += stride) {
        *dst = (u8)histogram.settle(rank);
        if (row + 1 == tile.height) return;
        const u8* old = src + clamped(tile.y + row - size / 2, item.height) * stride;
        const u8* fresh = src + clamped(tile.y + row + 1 + size / 2, item.height) * stride;
#pragma unroll 8
        for (int i = 0, at = start; i < size; at = offset_after<INSIDE>(at, left + i++, item.width, c))
            histogram.remove(old[at]), histogram.add(fresh[at]);
    }
}

template <int C, bool INSIDE>
__device__ __forceinline__ void slide_tile(const Item& item, const Tile& tile, u32* bins, int size, int rank)
{
    for (int column = threadIdx.x; column < tile.width * item.channels; column += 32 * SLIDERS)
        slide<C, INSIDE>(item, tile, column, bins, size, rank);
}

extern "C" __global__ void __launch_bounds__(256)
median_slide(const Item* items, const u32* starts, int n)
{
    __shared__ u32 bins[SLIDERS * 128 * 32];
    int block;
    Item item = owner(items, starts, n, block);
    int size = median_size(item), rank = global<const int>(item.data)[1];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= SLIDERS) return;
    Tile tile = tile_of(item, block, SLIDE_WIDTH, SLIDE_HEIGHT);
    u32* own = bins + warp * 128 * 32 + lane;
    bool inside = tile.x >= size / 2 && tile.x + tile.width + size / 2 <= item.width;
    if (!inside) slide_tile<0, false>(item, tile, own, size, rank);
    else if (item.channels == 1) slide_tile<1, true>(item, tile, own, size, rank);
    else if (item.channels == 3) slide_tile<3, true>(item, tile, own, size, rank);
    else slide_tile<4, true>(item, tile, own, size, rank);
}
