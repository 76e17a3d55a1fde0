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

// Adds a row's samples by the weights of theirs.
template <int C>
__device__ __forceinline__ void add_weighed(const u32* weights, const Pairs<C>& row, u32* even, u32* odd)
{
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        even[k] += weights[0] * row.even_before(k + 1) + weights[1] * row.even[k + 1] + weights[2] * row.even_after(k + 1);
        odd[k] += weights[0] * row.odd_before(k + 1) + weights[1] * row.odd[k + 1] + weights[2] * row.odd_after(k + 1);
    }
}

template <int C>
__device__ __forceinline__ void whole_rows(const Item& item, const Whole& of, int y, int at)
{
    u32 even[PAIRS_ROWS][4], odd[PAIRS_ROWS][4], alpha[PAIRS_ROWS][4];
#pragma unroll
    for (int i = 0; i < PAIRS_ROWS * 4; ++i) even[i / 4][i % 4] = odd[i / 4][i % 4] = of.added;
#pragma unroll
    for (int row = 0; row < PAIRS_ROWS + 2; ++row) {
        Pairs<C> pairs;
        pairs.load(item, y + row - 1, at);
        if (C == 4 && row > 0 && row <= PAIRS_ROWS)
            for (int k = 0; k < 4; ++k) alpha[row - 1][k] = pairs.word(k + 1) & 0xFF000000;
#pragma unroll
        for (int i = max(row - 2, 0); i <= min(row, PAIRS_ROWS - 1); ++i)
            add_weighed(of.weights + 3 * (row - i), pairs, even[i], odd[i]);
    }
#pragma unroll
    for (int i = 0; i < PAIRS_ROWS; ++i) {
        u32 made[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            u32 evens[2], odds[2];
            divided(of, even[i][k], evens);
            divided(of, odd[i][k], odds);
            u32 low = __byte_perm(evens[0], odds[0], 0x0062), high = __byte_perm(evens[1], odds[1], 0x0062);
            made[k] = __byte_perm(low, high, 0x5410);
            if (C == 4) made[k] = (made[k] & 0xFFFFFF) | alpha[i][k];
        }
        if (y + i < item.height) store_four<C>(item, y + i, at, made);
    }
}

template <int C> __device__ __forceinline__ void whole_tile(const Item& item, int block)
{
    const Whole of = *global<const Whole>(item.data);
    each_sixteen<C>(item, block, [&](int y, int at) { whole_rows<C>(item, of, y, at); });
}

extern "C" __global__ void __launch_bounds__(256, 3)
around_whole(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    if (item.channels == 1) whole_tile<1>(item, block);
    else if (item.channels == 3) whole_tile<3>(item, block);
    else whole_tile<4>(item, block);
}
