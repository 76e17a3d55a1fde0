// Samples as they lie in memory, two a word, and the neighbours of each: what is added or multiplied
// is so twice at once. A lane makes sixteen samples of four rows, straight from memory: what lanes
// read in common is in the cache, and none waits for another.

constexpr int PAIRS_WIDTH = 256, PAIRS_HEIGHT = 64, PAIRS_ROWS = 4;  // of a tile, of a lane

// Of rows that are no multiples of 16 bytes; apart as `replicated4` is.
template <int C> static __device__ __noinline__ void load_six_slowly(const u8* row, int bytes, int at, u32* words)
{
    for (int k = 0; k < 6; ++k) words[k] = samples4(row, bytes, C, at + 4 * k - 4);
}

// Six words of a row: sixteen samples from `at` on, four before and four after; its ends replicate.
template <int C> __device__ __forceinline__ void load_six(const u8* row, int bytes, int at, u32* words)
{
    if (bytes % 16 == 0) {
        load16(row + at, words + 1);
        words[0] = at > 0 ? *(const u32*)(row + at - 4) : words[1] << (32 - 8 * C);
        words[5] = at + 16 < bytes ? *(const u32*)(row + at + 16) : words[4] >> (32 - 8 * C);
    } else {
        u32 slowly[6];
        load_six_slowly<C>(row, bytes, at, slowly);
        for (int k = 0; k < 6; ++k) words[k] = slowly[k];
    }
}

// Even samples of each word, and odd ones.
template <int C> struct Pairs {
    u32 even[6], odd[6];

    __device__ __forceinline__ void load(const Item& item, int y, int at)
    {
        u32 words[6];
        load_six<C>(source_row(item, y), item.width * C, at, words);
#pragma unroll
        for (int k = 0; k < 6; ++k) even[k] = words[k] & HALVES, odd[k] = __byte_perm(words[k], 0, 0x4341);
    }

    __device__ __forceinline__ u32 word(int k) const { return even[k] | odd[k] << 8; }

    // Of the samples of word k: those C before, or C after.
    __device__ __forceinline__ u32 even_before(int k) const
    {
        if constexpr (C == 1) return __funnelshift_r(odd[k - 1], odd[k], 16);
        return C == 3 ? odd[k - 1] : even[k - 1];
    }

    __device__ __forceinline__ u32 even_after(int k) const
    {
        if constexpr (C == 1) return odd[k];
        return C == 3 ? __funnelshift_r(odd[k], odd[k + 1], 16) : even[k + 1];
    }

    __device__ __forceinline__ u32 odd_before(int k) const
    {
        if constexpr (C == 1) return even[k];
        return C == 3 ? __funnelshift_r(even[k - 1], even[k], 16) : odd[k - 1];
    }

    __device__ __forceinline__ u32 odd_after(int k) const
    {
        if constexpr (C == 1) return __funnelshift_r(even[k], even[k + 1], 16);
        return C == 3 ? even[k + 1] : odd[k + 1];
    }
};

// Sixteen samples of a row, as many as there are: words where rows are whole words, else bytes.
static __device__ __noinline__ void store_four_slowly(u8* row, int bytes, int at, u32 a, u32 b, u32 c, u32 d)
{
    u32 words[4] = {a, b, c, d};
    for (int k = 0; k < 4; ++k, at += 4) {
        if (bytes % 4 == 0 && at < bytes) *(u32*)(row + at) = words[k];
        else
            for (int i = at; i < min(at + 4, bytes); ++i) row[i] = (u8)byte_of(words[k], i - at);
    }
}

// Sixteen samples of row y, from `at` on.
template <int C> __device__ __forceinline__ void store_four(const Item& item, int y, int at, const u32* words)
{
    int bytes = item.width * C;
    u8* row = global<u8>(item.dst) + (u32)y * (u32)bytes;
    if (bytes % 16 == 0) store16(row + at, words);
    else store_four_slowly(row, bytes, at, words[0], words[1], words[2], words[3]);
}

// Calls `make` with the first row and the first sample of what each lane has to do of a tile.
template <int C, class Make> __device__ __forceinline__ void each_sixteen(const Item& item, int block, const Make& make)
{
    constexpr int ACROSS = PAIRS_WIDTH * C / 16;
    Tile tile = tile_of(item, block, PAIRS_WIDTH, PAIRS_HEIGHT);
#pragma unroll 1
    for (int i = threadIdx.x; i < PAIRS_HEIGHT / PAIRS_ROWS * ACROSS; i += THREADS) {
        int at = i % ACROSS * 16, row = i / ACROSS * PAIRS_ROWS;
        if (at < tile.width * C && row < tile.height) make(tile.y + row, tile.x * C + at);
    }
}
