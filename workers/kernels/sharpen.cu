// ImageEnhance.Sharpness: a blend with SMOOTH, which is (sum of 3 × 3 + 4 · centre) / 13, half-up.
// No such quotient is near a half, so integers give what Pillow's floats do. Tiles as in median.cu.

// Sums of a sample and both its neighbours, of even samples and of odd ones: 16 bits each.
struct Sums {
    u32 even, odd;
};

__device__ __forceinline__ Sums row_sums(const u32* w, int shift)
{
    u32 left = __funnelshift_r(w[-1], w[0], 32 - shift), right = __funnelshift_rc(w[0], w[1], shift);
    return {(left & HALVES) + (w[0] & HALVES) + (right & HALVES),
            (left >> 8 & HALVES) + (w[0] >> 8 & HALVES) + (right >> 8 & HALVES)};
}

// Sample k of a word, sharpened but not clipped, in the lower half; `half` of `sums` is 13 times what
// is smooth, with 6 more. 5042 / 65536 divides by 13 exactly up to 65535 / 13.
__device__ __forceinline__ u32 sharpened(u32 word, int k, u32 sums, u32 half, float factor)
{
    float sum = __uint_as_float(__byte_perm(sums, 0x4B000000, half));
    float smooth = __fmaf_rz(sum, 5042.0f / 65536, 8388608.0f - 645376.0f);
    float level = __uint_as_float(__byte_perm(word, 0x4B000000, 0x7440 + k));
    float mixed = __fadd_rn(__fmul_rn(__fsub_rn(level, smooth), factor), __fsub_rn(smooth, 8388608.0f));
    return __float_as_uint(__fadd_rz(mixed, 12582912.0f));
}

// Four samples; `sums` are those of three rows.
__device__ __forceinline__ u32 sharpened4(u32 word, const Sums* sums, float factor)
{
    u32 even = sums[0].even + sums[1].even + sums[2].even + 4 * (word & HALVES) + 0x00060006;
    u32 odd = sums[0].odd + sums[1].odd + sums[2].odd + 4 * (word >> 8 & HALVES) + 0x00060006;
    u32 made[4];
    for (int k = 0; k < 4; ++k)
        made[k] = sharpened(word, k, k % 2 ? odd : even, k < 2 ? 0x7610 : 0x7632, factor);
    u32 low = __vimin_s16x2_relu(__byte_perm(made[0], made[2], 0x5410), 0x00FF00FF);
    u32 high = __vimin_s16x2_relu(__byte_perm(made[1], made[3], 0x5410), 0x00FF00FF);
    return low | high << 8;
}

template <int C>
__device__ __forceinline__ void sharpen_tile(const Item& item, const Tile& tile, u32* words, u32* out)
{
    constexpr int ACROSS = EXCHANGE_WIDTH / 4 * C, PITCH = ACROSS + 8;
    float factor = *global<const float>(item.data);
    int across = (tile.width * C + 3) / 4, end = (item.width - 1) * C;
    Results<C> results(item, tile, out);
    stage_around<C>(item, tile, words);
    __syncthreads();
    for (int i = threadIdx.x; i < EXCHANGE_HEIGHT / EXCHANGE_ROWS * ACROSS; i += THREADS) {
        int at = i % ACROSS, first = i / ACROSS * EXCHANGE_ROWS, sample = tile.x * C + 4 * at;
        if (at >= across || first >= tile.height) continue;
        u32 kept = C == 4 ? 0xFF000000u : 0;
        for (int k = 0; k < 4; ++k)
            if (sample + k < C || sample + k >= end) kept |= 255u << 8 * k;
        Sums sums[EXCHANGE_ROWS + 2];
#pragma unroll
        for (int k = 0; k < EXCHANGE_ROWS + 2; ++k)
            sums[k] = row_sums(words + (first + k) * PITCH + at + 4, 8 * C);
#pragma unroll
        for (int k = 0; k < EXCHANGE_ROWS; ++k) {
            u32 word = words[(first + k + 1) * PITCH + at + 4], made = sharpened4(word, sums + k, factor);
            int y = tile.y + first + k;
            u32 mask = y == 0 || y == item.height - 1 ? ~0u : kept;
            if (y < item.height) results.store(first + k, at, (word & mask) | (made & ~mask));
        }
    }
    results.finish(item, tile);
}

extern "C" __global__ void __launch_bounds__(256, 5)
sharpen(const Item* items, const u32* starts, int n)
{
    __shared__ uint4 words[(EXCHANGE_HEIGHT + 2) * (EXCHANGE_WIDTH + 8) / 4];
    __shared__ uint4 out[EXCHANGE_HEIGHT * EXCHANGE_WIDTH / 4 + 1];
    int block;
    Item item = owner(items, starts, n, block);
    Tile tile = tile_of(item, block, EXCHANGE_WIDTH, EXCHANGE_HEIGHT);
    if (item.channels == 1) sharpen_tile<1>(item, tile, (u32*)words, (u32*)out);
    else if (item.channels == 3) sharpen_tile<3>(item, tile, (u32*)words, (u32*)out);
    else sharpen_tile<4>(item, tile, (u32*)words, (u32*)out);
}
