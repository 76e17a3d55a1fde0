// ImageEnhance.Sharpness: a blend with SMOOTH, which is (sum of 3 × 3 + 4 · centre) / 13, half-up.
// No such quotient is near a half, so integers give what Pillow's floats do.

// A sample, sharpened but not clipped, in the lower half; that of `sums` is 13 times what is smooth. It
// is divided with a half more: 1290555 is 2**24 / 13, and no quotient is nearer to a half than 1 / 26.
__device__ __forceinline__ u32 sharpened(u32 levels, u32 sums, u32 half, float factor)
{
    float sum = __uint_as_float(__byte_perm(sums, 0x4B000000, half));
    float smooth = __fmaf_rz(sum, 1290555.0f / 16777216, 8388608.0f - 645277.0f);
    float level = __uint_as_float(__byte_perm(levels, 0x4B000000, half));
    float mixed = __fadd_rn(__fmul_rn(__fsub_rn(level, smooth), factor), __fsub_rn(smooth, 8388608.0f));
    return __float_as_uint(__fadd_rz(mixed, 12582912.0f));
}

__device__ __forceinline__ u32 sharpened2(u32 levels, u32 sums, float factor)
{
    u32 low = sharpened(levels, sums, 0x7610, factor), high = sharpened(levels, sums, 0x7632, factor);
    return __vimin_s16x2_relu(__byte_perm(low, high, 0x5410), HALVES);
}

// Of a row, C words; `rows` are this one and both beside it.
template <int C>
__device__ __forceinline__ void sharpen_row(const Pairs<C>* rows, float factor, u32* made)
{
    Pairs<C> sums;
#pragma unroll
    for (int k = 0; k < C + 2; ++k) {
        sums.even[k] = rows[0].even[k] + rows[1].even[k] + rows[2].even[k];
        sums.odd[k] = rows[0].odd[k] + rows[1].odd[k] + rows[2].odd[k];
    }
#pragma unroll
    for (int k = 1; k <= C; ++k) {
        u32 even = rows[1].even[k], odd = rows[1].odd[k];
        u32 evens = sums.even_before(k) + sums.even[k] + sums.even_after(k) + 4 * even;
        u32 odds = sums.odd_before(k) + sums.odd[k] + sums.odd_after(k) + 4 * odd;
        made[k - 1] = __byte_perm(sharpened2(even, evens, factor), sharpened2(odd, odds, factor), 0x6240);
    }
}

// Which bits of a word of samples stay as they are: alpha, and those of a row's first and last pixel.
// Apart, for it is rare.
template <int C> static __device__ __noinline__ u32 kept_bits(int bytes, int at)
{
    u32 kept = C == 4 ? 0xFF000000u : 0;
    for (int k = 0; k < 4; ++k)
        if (at + k < C || at + k >= bytes - C) kept |= 255u << 8 * k;
    return kept;
}

template <int C>
__device__ __forceinline__ void sharpen_rows(
    const Item& item, const Tile& tile, float factor, const u32* words, int first, int at, u32* room)
{
    constexpr int PITCH = Pairs<C>::PITCH;
    bool inside = C != 4 && tile.x > 0 && tile.x + tile.width < item.width;
    Pairs<C> rows[3];
    rows[1].load(words), rows[2].load(words + PITCH);
#pragma unroll
    for (int i = 0; i < PAIRS_ROWS; ++i) {
        rows[0] = rows[1], rows[1] = rows[2];
        rows[2].load(words + (i + 2) * PITCH);
        if (first + i >= tile.height) continue;
        u32 made[C];
        sharpen_row(rows, factor, made);
        int y = tile.y + first + i;
        bool outermost = y == 0 || y == item.height - 1;
        if (!inside || outermost)
            for (int k = 0; k < C; ++k) {
                u32 kept = outermost ? ~0u : kept_bits<C>(item.width * C, at + 4 * k);
                made[k] = (words[(i + 1) * PITCH + k] & kept) | (made[k] & ~kept);
            }
        store_pairs<C>(item, tile, first + i, made, room);
    }
}

template <int C> __device__ __forceinline__ void sharpen_tile(const Item& item, int block, u32* words, u32* room)
{
    float factor = *global<const float>(item.data);
    pairs_tile<C>(item, block, words, room, [&](const Tile& tile, const u32* from, int row, int at, u32* own) {
        sharpen_rows<C>(item, tile, factor, from, row, at, own);
    });
}

extern "C" __global__ void __launch_bounds__(256, 4)
sharpen(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[PAIRS_WORDS / 4], room[EIGHTS / 4];
    int block;
    Item item = owner(items, starts, n, block);
    if (item.channels == 1) sharpen_tile<1>(item, block, (u32*)words, (u32*)room);
    else if (item.channels == 3) sharpen_tile<3>(item, block, (u32*)words, (u32*)room);
    else sharpen_tile<4>(item, block, (u32*)words, (u32*)room);
}
