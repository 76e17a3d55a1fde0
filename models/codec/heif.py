"""Read HEIF and HEIC files by libheif, which the package pi-heif brings, as a picture of Pillow's.

The functions of libheif are called directly: the plugin of pi-heif starts a thread for each image,
which a decoder process may not do, and opens all images of a file. Here the primary image alone is
opened; depth, gain maps, thumbnails and further images are left alone. libheif turns, mirrors and
cuts the image by its properties (`irot`, `imir`, `clap`). EXIF does not turn the image again:
ISO/IEC 23008-12, annex A.2, calls the orientation of EXIF informative.
"""

import ctypes
import weakref
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint32, c_void_p
from typing import Any

import _pi_heif  # its file needs libheif, so the functions of libheif are found through it
import numpy as np
from PIL import ImageFile

from models.codec.containers import nclx, properties
from models.codec.metadata import MAX_BYTES, PREFIX
from models.domain.image import Pixels

_RGB, _INTERLEAVED_RGB, _INTERLEAVED_RGBA, _INTERLEAVED = 1, 10, 11, 10
"""Members of heif_colorspace, heif_chroma (two) and heif_channel."""

_LEAST_LIMIT = 1 << 22
"""Pixels that any file may decode at once: the tiles of a small grid are larger than its image."""

_MAX_PROFILE = 16 << 20

_DERIVED_FROM, _HEVC = (int.from_bytes(name, "big") for name in (b"dimg", b"hvc1"))
"""The kind of the references from a grid to its tiles, and the type of an item in HEVC."""


class _Error(Structure):
    _fields_ = (("code", c_int), ("subcode", c_int), ("message", c_char_p))


class _Options(Structure):
    """heif_decoding_options, version 8, to which libheif only appends fields."""

    _fields_ = (
        ("version", c_uint8),
        ("ignore_transformations", c_uint8),
        ("progress", c_void_p * 4),
        ("convert_hdr_to_8bit", c_uint8),
        ("strict_decoding", c_uint8),
        ("decoder_id", c_char_p),
        ("conversion", c_uint32 * 4),
        ("cancel_decoding", c_void_p),
        ("conversion_ext", c_void_p),
        ("ignore_sequence_editlist", c_int),
        ("output_nclx", c_void_p),
        ("num_library_threads", c_int),
        ("num_codec_threads", c_int),
    )


class _Limits(Structure):
    """The beginning of heif_security_limits."""

    _fields_ = (("version", c_uint8), ("max_image_size_pixels", ctypes.c_uint64))


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "heif_init": (_Error, c_void_p),
    "heif_context_alloc": (c_void_p,),
    "heif_context_free": (None, c_void_p),
    "heif_context_set_max_decoding_threads": (None, c_void_p, c_int),
    "heif_context_get_security_limits": (POINTER(_Limits), c_void_p),
    "heif_context_read_from_memory_without_copy": (_Error, c_void_p, c_char_p, c_size_t, c_void_p),
    "heif_context_get_primary_image_handle": (_Error, c_void_p, POINTER(c_void_p)),
    "heif_image_handle_release": (None, c_void_p),
    "heif_image_handle_get_width": (c_int, c_void_p),
    "heif_image_handle_get_height": (c_int, c_void_p),
    "heif_image_handle_has_alpha_channel": (c_int, c_void_p),
    "heif_image_handle_is_premultiplied_alpha": (c_int, c_void_p),
    "heif_image_handle_get_raw_color_profile_size": (c_size_t, c_void_p),
    "heif_image_handle_get_raw_color_profile": (_Error, c_void_p, c_void_p),
    "heif_image_handle_get_list_of_metadata_block_IDs": (
        *(c_int, c_void_p, c_char_p, POINTER(c_uint32), c_int),
    ),
    "heif_context_get_primary_image_ID": (_Error, c_void_p, POINTER(c_uint32)),
    "heif_context_get_item_references": (
        *(c_size_t, c_void_p, c_uint32, c_int, POINTER(c_uint32), POINTER(POINTER(c_uint32))),
    ),
    "heif_release_item_references": (None, c_void_p, POINTER(POINTER(c_uint32))),
    "heif_item_get_item_type": (c_uint32, c_void_p, c_uint32),
    "heif_item_get_item_data": (
        *(_Error, c_void_p, c_uint32, c_void_p, POINTER(c_void_p), POINTER(c_size_t)),
    ),
    "heif_release_item_data": (None, c_void_p, POINTER(c_void_p)),
    "heif_image_handle_get_metadata_size": (c_size_t, c_void_p, c_uint32),
    "heif_image_handle_get_metadata": (_Error, c_void_p, c_uint32, c_void_p),
    "heif_decoding_options_alloc": (POINTER(_Options),),
    "heif_decode_image": (_Error, c_void_p, POINTER(c_void_p), c_int, c_int, POINTER(_Options)),
    "heif_image_get_width": (c_int, c_void_p, c_int),
    "heif_image_get_height": (c_int, c_void_p, c_int),
    "heif_image_get_plane_readonly2": (c_void_p, c_void_p, c_int, POINTER(c_size_t)),
    "heif_image_release": (None, c_void_p),
}
"""The result and the arguments of each function that is used."""


def _load() -> tuple[Any, Any]:
    """Return the functions of libheif, and the options with which all images are decoded."""
    library: Any = ctypes.CDLL(_pi_heif.__file__)
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.heif_init(None)
    options = library.heif_decoding_options_alloc()
    if options[0].version < 8:
        raise ImportError("libheif is older than 1.21; install pi-heif 1.4 or newer")
    options[0].convert_hdr_to_8bit = 1
    options[0].strict_decoding = 1  # a tile that is damaged fails the image
    options[0].num_codec_threads = -1  # 0 is the default of the codec, which is one more thread
    return library, options


_HEIF, _OPTIONS = _load()


class HeifPicture(ImageFile.ImageFile):
    """The primary image of a HEIF file; `decoded` returns the pixels in place of Pillow's `load`.

    `size` is that of the image as it is shown, upright. `stored_pixels`, which are decoded, may be
    more.
    """

    format = "HEIF"
    stored_pixels = 0

    def _open(self) -> None:
        file: Any = self.fp
        self._data: bytes = file.getvalue()  # libheif reads it until the handle is released
        self._context = _HEIF.heif_context_alloc()
        weakref.finalize(self, _HEIF.heif_context_free, self._context)
        found = properties(self._data)
        extents = next((content for name, content in found if name == b"ispe"), b"")
        sides = [int.from_bytes(extents[at : at + 4], "big") for at in (4, 8)]
        self.stored_pixels = sides[0] * sides[1]
        limits = _HEIF.heif_context_get_security_limits(self._context)
        limits[0].max_image_size_pixels = max(2 * self.stored_pixels, _LEAST_LIMIT)
        _HEIF.heif_context_set_max_decoding_threads(self._context, 0)
        given, self._handle = (self._context, self._data, len(self._data), None), c_void_p()
        _check(_HEIF.heif_context_read_from_memory_without_copy(*given))
        _check(_HEIF.heif_context_get_primary_image_handle(self._context, byref(self._handle)))
        weakref.finalize(self, _HEIF.heif_image_handle_release, self._handle)
        width = _HEIF.heif_image_handle_get_width(self._handle)
        height = _HEIF.heif_image_handle_get_height(self._handle)
        if not 0 < width * height <= self.stored_pixels:
            raise SyntaxError("the image has no size, or another size than its file says")
        self._size = width, height
        alpha = _HEIF.heif_image_handle_has_alpha_channel(self._handle)
        multiplied = alpha and _HEIF.heif_image_handle_is_premultiplied_alpha(self._handle)
        self._mode = "RGBA" if alpha else "RGB"
        self.raw_mode = "RGBa" if multiplied else self._mode
        if profile := self._profile():
            self.info["icc_profile"] = profile
        elif points := nclx(found):
            self.info["nclx"] = points
        if len(exif := self._exif_item()) > 4:
            start = 4 + int.from_bytes(exif[:4], "big")
            self.info["exif"] = PREFIX + exif[start:].removeprefix(PREFIX)
        self.tile = []

    def _profile(self) -> bytes:
        size = _HEIF.heif_image_handle_get_raw_color_profile_size(self._handle)
        if not 0 < size <= _MAX_PROFILE:
            return b""
        profile = ctypes.create_string_buffer(size)
        _check(_HEIF.heif_image_handle_get_raw_color_profile(self._handle, profile))
        return profile.raw

    def _exif_item(self) -> bytes:
        """Return the first item of EXIF, empty where the file has none."""
        block = c_uint32()
        if not _HEIF.heif_image_handle_get_list_of_metadata_block_IDs(
            self._handle, b"Exif", byref(block), 1
        ):
            return b""
        size = _HEIF.heif_image_handle_get_metadata_size(self._handle, block)
        if not 0 < size <= MAX_BYTES:
            return b""
        content = ctypes.create_string_buffer(size)
        error = _HEIF.heif_image_handle_get_metadata(self._handle, block, content)
        return b"" if error.code else content.raw

    def decoded(self) -> Pixels:
        """Return the pixels as uint8 (H, W, 3 or 4) in the memory of libheif."""
        for tile in set(self._tiles()):
            self._check_stream(tile)
        image, stride = c_void_p(), c_size_t()
        chroma = _INTERLEAVED_RGB if self.mode == "RGB" else _INTERLEAVED_RGBA
        _check(_HEIF.heif_decode_image(self._handle, byref(image), _RGB, chroma, _OPTIONS))
        width = _HEIF.heif_image_get_width(image, _INTERLEAVED)
        height = _HEIF.heif_image_get_height(image, _INTERLEAVED)
        plane = _HEIF.heif_image_get_plane_readonly2(image, _INTERLEAVED, byref(stride))
        memory = (c_uint8 * (stride.value * height)).from_address(plane)
        weakref.finalize(memory, _HEIF.heif_image_release, image)
        if (width, height) != self.size:
            raise SyntaxError("the pixels have another size than the file says")
        rows = np.frombuffer(memory, np.uint8).reshape(height, stride.value)
        return rows[:, : width * len(self.mode)].reshape(height, width, len(self.mode))

    def _tiles(self) -> list[int]:
        """Return the items of which the primary image is made, or its own item."""
        primary, kind, found = c_uint32(), c_uint32(), POINTER(c_uint32)()
        _check(_HEIF.heif_context_get_primary_image_ID(self._context, byref(primary)))
        index, tiles = 0, [primary.value]
        while n := _HEIF.heif_context_get_item_references(
            self._context, primary, index, byref(kind), byref(found)
        ):
            if kind.value == _DERIVED_FROM:
                tiles = found[:n]
            _HEIF.heif_release_item_references(self._context, byref(found))
            index += 1
        return tiles

    def _check_stream(self, item: int) -> None:
        """Raise an error for a lost part of a stream of HEVC, whose place is filled with zeros.

        libde265 would fill the part with grey. Three bytes of zero never stand inside a unit of a
        stream, nor is the last byte of a unit zero (ITU-T H.265, 7.4.1 and 7.4.2). The units have
        their lengths in 4 bytes before them.
        """
        if _HEIF.heif_item_get_item_type(self._context, item) != _HEVC:
            return
        memory, size = c_void_p(), c_size_t()
        _check(_HEIF.heif_item_get_item_data(self._context, item, None, byref(memory), byref(size)))
        stream = ctypes.string_at(memory, size.value)
        _HEIF.heif_release_item_data(self._context, byref(memory))
        at = 0
        while at < len(stream):
            start, at = at + 4, at + 4 + int.from_bytes(stream[at : at + 4], "big")
            if at > len(stream) or stream[at - 1] == 0 or stream.find(b"\0\0\0", start, at) >= 0:
                raise SyntaxError("a part of the pixels is lost")


def _check(error: Any) -> None:
    """Raise the errors of Pillow's parsers for an error of libheif."""
    if error.code:
        raise SyntaxError((error.message or b"").decode(errors="replace"))
