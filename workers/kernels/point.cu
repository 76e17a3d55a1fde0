// Filters that see one pixel at a time: the image is one line of samples, LINE of them a block,
// 48 bytes a thread, which are whole pixels of 1, 3 and 4 channels.

constexpr u32 LINE = 12288;

__device__ __forceinline__ u32 samples_of(const Item& item)
{
    return (u32)item.width * item.height * item.channels;
}

__device__ __forceinline__ u32 mapped(u32 word, const u8* table, u32 kept)
{
    u32 low = table[word & 255] | (u32)table[word >> 8 & 255] << 8;
    u32 high = table[word >> 16 & 255] | (u32)table[word >> 24] << 8;
    return ((low | high << 16) & ~kept) | (word & kept);
}

// All samples but alpha through a table in shared memory.
__device__ __forceinline__ void map_samples(const Item& item, int block, const u8* table)
{
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    u32 total = samples_of(item), first = block * LINE + 16 * threadIdx.x;
    u32 kept = item.channels == 4 ? 0xFF000000u : 0;
    uint4 v[3];
    for (int i = 0; i < 3; ++i)
        if (first + 4096 * i + 16 <= total) v[i] = *(const uint4*)(src + first + 4096 * i);
    for (int i = 0; i < 3; ++i) {
        u32 at = first + 4096 * i;
        if (at + 16 <= total) {
            u32 made[4] = {mapped(v[i].x, table, kept), mapped(v[i].y, table, kept),
                           mapped(v[i].z, table, kept), mapped(v[i].w, table, kept)};
            store16(dst + at, made);
        } else {
            for (u32 s = at; s < total; ++s) dst[s] = kept && s % 4 == 3 ? src[s] : table[src[s]];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
through_table(const Item* items, const u32* starts, int n)
{
    __shared__ u8 table[256];
    int block;
    Item item = owner(items, starts, n, block);
    table[threadIdx.x] = global<const u8>(item.data)[threadIdx.x];
    __syncthreads();
    map_samples(item, block, table);
}

// The colours of a pixel and its luma, blended; `from_grey` says which of the two is the base.
__device__ __forceinline__ void fade(const u32* colour, u32* made, float factor, bool from_grey)
{
    float grey = as_float(luma(colour[0], colour[1], colour[2]));
    for (int c = 0; c < 3; ++c) {
        float level = as_float(colour[c]);
        made[c] = blend(from_grey ? grey : level, from_grey ? level : grey, factor);
    }
}

// Four pixels of 3 or 4 channels, C words.
template <int C>
__device__ __forceinline__ void fade4(const u32* in, u32* out, float factor, bool from_grey)
{
    u32 made[4 * C];
    for (int k = 0; k < 4; ++k) {
        u32 colour[C];
        for (int c = 0; c < C; ++c) colour[c] = byte_of(in[(C * k + c) / 4], (C * k + c) % 4);
        fade(colour, made + C * k, factor, from_grey);
        if constexpr (C == 4) made[C * k + 3] = colour[3];
    }
    for (int i = 0; i < C; ++i)
        out[i] = packed(made[4 * i], made[4 * i + 1], made[4 * i + 2], made[4 * i + 3]);
}

template <int C>
__device__ __forceinline__ void fade_line(const Item& item, int block, float factor, bool from_grey)
{
    u32 total = samples_of(item), at = block * LINE + 48 * threadIdx.x;
    const u8* src = global<const u8>(item.src) + at;
    u8* dst = global<u8>(item.dst) + at;
    if (at + 48 <= total) {
        u32 in[12], out[12];
        for (int i = 0; i < 3; ++i) load16(src + 16 * i, in + 4 * i);
        for (int i = 0; i < 12; i += C) fade4<C>(in + i, out + i, factor, from_grey);
        for (int i = 0; i < 3; ++i) store16(dst + 16 * i, out + 4 * i);
        return;
    }
    for (; at < total; at += C, src += C, dst += C) {
        u32 colour[C], made[C];
        for (int c = 0; c < C; ++c) colour[c] = src[c];
        fade(colour, made, factor, from_grey);
        if constexpr (C == 4) made[3] = colour[3];
        for (int c = 0; c < C; ++c) dst[c] = (u8)made[c];
    }
}

__device__ __forceinline__ void copy_line(const Item& item, int block)
{
    const u8* src = global<const u8>(item.src);
    u8* dst = global<u8>(item.dst);
    u32 total = samples_of(item), first = block * LINE + 16 * threadIdx.x;
    for (u32 at = first; at < min(total, first + LINE); at += 4096) {
        if (at + 16 <= total) *(uint4*)(dst + at) = *(const uint4*)(src + at);
        else for (u32 s = at; s < total; ++s) dst[s] = src[s];
    }
}

__device__ __forceinline__ void fade_image(const Item& item, int block, bool from_grey)
{
    float factor = *global<const float>(item.data);
    if (item.channels == 3) fade_line<3>(item, block, factor, from_grey);
    else if (item.channels == 4) fade_line<4>(item, block, factor, from_grey);
    else copy_line(item, block);  // grey is its own luma
}

extern "C" __global__ void __launch_bounds__(256)
grayscale(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    fade_image(item, block, false);
}

extern "C" __global__ void __launch_bounds__(256)
saturation(const Item* items, const u32* starts, int n)
{
    int block;
    Item item = owner(items, starts, n, block);
    fade_image(item, block, true);
}
