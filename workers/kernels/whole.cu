// Sums of neighbours by 3 × 3 small whole weights, over a divisor. Borders replicate.

struct Whole {
    u32 added;       // 2**15 more than what is added to a sum, in both halves
    u32 most;        // sum that is not cut off, in both halves
    u32 multiplier;  // 2**16 over the divisor, rounded up
    u32 weights[9];  // row by row, modulo 2**32
};

// Two sums to two levels, each in the third byte of a word. In both halves sums are between -2**15
// and 2**15, so that with `added` none of them borrows from the other.
__device__ __forceinline__ void divided(const Whole& of, u32 sums, u32* levels)
{
    u32 cut = __vimin_s16x2_relu(sums ^ 0x80008000, of.most);
    levels[0] = (cut & 0xFFFF) * of.multiplier, levels[1] = (cut >> 16) * of.multiplier;
}

// Sums of C words, of even samples and of odd ones.
template <int C> struct WholeSums {
    u32 even[C], odd[C];

    __device__ __forceinline__ void begin(u32 added)
    {
        for (int k = 0; k < C; ++k) even[k] = odd[k] = added;
    }

    __device__ __forceinline__ void add(const u32* weights, const Pairs<C>& row)
    {
#pragma unroll
        for (int k = 0; k < C; ++k) {
            even[k] += weights[0] * row.even_before(k + 1) + weights[1] * row.even[k + 1] + weights[2] * row.even_after(k + 1);
            odd[k] += weights[0] * row.odd_before(k + 1) + weights[1] * row.odd[k + 1] + weights[2] * row.odd_after(k + 1);
        }
    }

    __device__ __forceinline__ u32 level(const Whole& of, int k) const
    {
        u32 evens[2], odds[2];
        divided(of, even[k], evens);
        divided(of, odd[k], odds);
        u32 low = __byte_perm(evens[0], odds[0], 0x0062), high = __byte_perm(evens[1], odds[1], 0x0062);
        return __byte_perm(low, high, 0x5410);
    }
};

template <int C>
__device__ __forceinline__ void whole_rows(
    const Item& item, const Tile& tile, const Whole& of, const u32* words, int first, u32* room)
{
    constexpr int PITCH = Pairs<C>::PITCH;
    WholeSums<C> sums[3];
#pragma unroll
    for (int row = 0; row < PAIRS_ROWS + 2; ++row) {
        Pairs<C> pairs;
        pairs.load(words + row * PITCH);
        if (row < PAIRS_ROWS) sums[row % 3].begin(of.added);
#pragma unroll
        for (int y = max(row - 2, 0); y <= min(row, PAIRS_ROWS - 1); ++y)
            sums[y % 3].add(of.weights + 3 * (row - y), pairs);
        int y = row - 2;
        if (y < 0 || first + y >= tile.height) continue;
        u32 made[C];
        for (int k = 0; k < C; ++k) made[k] = sums[(row + 1) % 3].level(of, k);
        if (C == 4)
            for (int k = 0; k < C; ++k) made[k] = __byte_perm(made[k], words[(y + 1) * PITCH + k], 0x7210);
        store_pairs<C>(item, tile, first + y, made, room);
    }
}

template <int C> __device__ __forceinline__ void whole_tile(const Item& item, int block, u32* words, u32* room)
{
    const Whole of = *global<const Whole>(item.data);
    pairs_tile<C>(item, block, words, room, [&](const Tile& tile, const u32* from, int row, int, u32* own) {
        whole_rows<C>(item, tile, of, from, row, own);
    });
}

extern "C" __global__ void __launch_bounds__(256, 4)
around_whole(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[PAIRS_WORDS / 4], room[EIGHTS / 4];
    int block;
    Item item = owner(items, starts, n, block);
    if (item.channels == 1) whole_tile<1>(item, block, (u32*)words, (u32*)room);
    else if (item.channels == 3) whole_tile<3>(item, block, (u32*)words, (u32*)room);
    else whole_tile<4>(item, block, (u32*)words, (u32*)room);
}
