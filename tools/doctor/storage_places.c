// SPDX-License-Identifier: MIT
/* pindown doctor --storage: which file system and which NVMe disk a folder is on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/doctor/storage.h"
#include "tools/system/tree.h"

/* ---- mounts --------------------------------------------------------------------------------- */

/* A line of /proc/self/mountinfo, cut into its fields. */
struct mount {
	char *id, *device, *point, *options, *type, *source;
};

/* "\040" is a blank. */
static void decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned code;

		if (*text == '\\' && sscanf(text + 1, "%3o", &code) == 1 && strlen(text) > 3) {
			*to++ = (char)code;
			text += 3;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 / /mnt rw,noatime shared:1 - ext3 /dev/sda1 rw"; optional fields end with "-". */
static bool cut(char *line, struct mount *mount)
{
	char *rest, *fields[6], *word = strtok_r(line, " ", &rest);
	unsigned count = 0;

	for (; word && count < 6; word = strtok_r(NULL, " ", &rest))
		fields[count++] = word;
	while (word && strcmp(word, "-") != 0)
		word = strtok_r(NULL, " ", &rest);
	if (!word)
		return false;
	*mount = (struct mount){.id = fields[0],
				.device = fields[2],
				.point = fields[4],
				.options = fields[5],
				.type = strtok_r(NULL, " ", &rest),
				.source = strtok_r(NULL, " ", &rest)};
	if (!mount->source)
		return false;
	decode(mount->point);
	decode(mount->source);
	return true;
}

/* Takes the next line from the text at *at; false at its end. */
static bool next_mount(char **at, struct mount *mount)
{
	while (*at && **at) {
		char *line = *at, *end = strchr(line, '\n');

		*at = end ? end + 1 : line + strlen(line);
		if (end)
			*end = '\0';
		if (cut(line, mount))
			return true;
	}
	return false;
}

/* ---- disks ---------------------------------------------------------------------------------- */

/* The first directory of `path` whose name begins so, below `parent`, for release(); or NULL. */
static char *prefix_of(const char *path, const char *parent)
{
	const char *at = strstr(path, parent);
	size_t length;

	if (!at)
		return NULL;
	length = (size_t)(at - path) + strlen(parent);
	length += strcspn(path + length, "/");
	return text_of("%.*s", (int)length, path);
}

static bool is_controller(const char *name)
{
	return strncmp(name, "nvme", 4) == 0 && name[4] &&
	       strspn(name + 4, "0123456789") == strlen(name + 4);
}

/* With multipathing, the disk belongs to a subsystem, which links to its controllers. */
static char *controller_of_subsystem(const char *subsystem)
{
	struct texts names = tree_list("%s", subsystem);
	char *found = NULL;

	for (unsigned i = 0; i < names.count && !found; i++)
		if (is_controller(names.list[i]))
			found = tree_resolve("%s/%s", subsystem, names.list[i]);
	texts_free(&names);
	return found;
}

/* Devices may be stacked; a tree that was copied from elsewhere may be without end. */
struct search {
	unsigned left; /* devices to look at */
	bool is_multipath;
};

static char *controller_of(const char *path, struct search *search);

/* Of the disks that a device-mapper or md device is made of. */
static char *controller_of_parts(const char *device, struct search *search)
{
	struct texts parts = tree_list("%s/slaves", device);
	char *found = NULL;

	for (unsigned i = 0; i < parts.count && !found; i++) {
		char *part = tree_resolve("%s/slaves/%s", device, parts.list[i]);

		if (part)
			found = controller_of(part, search);
		release(part);
	}
	texts_free(&parts);
	return found;
}

/* The sysfs folder of the NVMe controller below a block device, for release(); NULL: none. */
static char *controller_of(const char *path, struct search *search)
{
	static const char *const parents[] = {"/nvme/nvme", "/nvme-fabrics/ctl/nvme"};
	const char *last = strrchr(path, '/');
	char *found = NULL, *subsystem, *whole;

	for (unsigned i = 0; i < 2 && !found; i++)
		found = prefix_of(path, parents[i]);
	if (found)
		return found;
	subsystem = prefix_of(path, "/nvme-subsystem/nvme-subsys");
	if (subsystem) {
		search->is_multipath = true;
		found = controller_of_subsystem(subsystem);
	}
	release(subsystem);
	if (found || !last || !search->left)
		return found;
	search->left--;
	found = controller_of_parts(path, search);
	if (found)
		return found;
	whole = text_of("%.*s", (int)(last - path), path); /* of a partition */
	found = controller_of_parts(whole, search);
	release(whole);
	return found;
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Of a file system whose device number is its own (btrfs), the source tells the disk. */
static char *block_device(const struct mount *mount)
{
	char *real, *path;

	if (strncmp(mount->device, "0:", 2) != 0)
		return tree_resolve("sys/dev/block/%s", mount->device);
	if (strncmp(mount->source, "/dev/", 5) != 0)
		return NULL;
	real = tree_resolve("%s", mount->source + 1);
	path = tree_resolve("sys/class/block/%s", last_name(real ? real : mount->source));
	release(real);
	return path;
}

static struct place place_of_mount(const char *folder, const struct mount *mount)
{
	struct place place = {.folder = text_of("%s", folder), .type = text_of("%s", mount->type)};
	struct search search = {.left = 100};
	char *path = block_device(mount), *controller, *transport;

	if (!path)
		return place;
	place.disk = text_of("%s", last_name(path));
	controller = controller_of(path, &search);
	place.is_multipath = search.is_multipath;
	if (controller) {
		place.controller = text_of("%s", last_name(controller));
		place.address = tree_read("%s/address", controller);
		transport = tree_read("%s/transport", controller);
		place.is_remote = transport && strcmp(transport, "pcie") != 0;
		release(transport);
	}
	release(controller);
	release(path);
	return place;
}

/* ---- folders -------------------------------------------------------------------------------- */

void places_add(struct places *places, struct place place)
{
	places->list = grow(places->list, &places->capacity, places->count, sizeof(*places->list));
	places->list[places->count++] = place;
}

static void place_free(struct place *place)
{
	release(place->folder);
	release(place->type);
	release(place->disk);
	release(place->controller);
	release(place->address);
}

void places_free(struct places *places)
{
	for (unsigned i = 0; i < places->count; i++)
		place_free(&places->list[i]);
	release(places->list);
	*places = (struct places){0};
}

static bool is_writable(const struct mount *mount)
{
	bool is_rw = strncmp(mount->options, "rw", 2) == 0;

	return is_rw && (!tree_is_live() || access(mount->point, W_OK | X_OK) == 0);
}

/* Containers bind files and folders of one file system to several places. */
static bool is_known(const struct places *places, const char *disk)
{
	for (unsigned i = 0; i < places->count; i++)
		if (strcmp(places->list[i].disk, disk) == 0)
			return true;
	return false;
}

struct places places_mounted(void)
{
	char *text = tree_read("proc/self/mountinfo"), *at = text;
	struct places places = {0};
	struct mount mount;

	while (next_mount(&at, &mount)) {
		struct place place = place_of_mount(mount.point, &mount);

		if (place.controller && is_writable(&mount) && !is_known(&places, place.disk))
			places_add(&places, place);
		else
			place_free(&place);
	}
	release(text);
	return places;
}

/* The id of the mount that a folder is on, as the first field of mountinfo has it. */
static bool mount_id(const char *folder, char *id, size_t capacity)
{
	int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *text = fd < 0 ? NULL : tree_read("proc/self/fdinfo/%d", fd);
	const char *line = text ? strstr(text, "mnt_id:") : NULL;

	if (line)
		snprintf(id, capacity, "%d", atoi(line + strlen("mnt_id:")));
	release(text);
	if (fd >= 0)
		close(fd);
	return line != NULL;
}

struct place place_of_folder(const char *folder)
{
	char *text = tree_read("proc/self/mountinfo"), *at = text, id[16];
	bool has_id = mount_id(folder, id, sizeof(id));
	struct place place = {0};
	struct mount mount;

	while (has_id && !place.folder && next_mount(&at, &mount))
		if (strcmp(mount.id, id) == 0)
			place = place_of_mount(folder, &mount);
	if (!place.folder)
		place.folder = text_of("%s", folder);
	release(text);
	return place;
}

char *place_described(const struct place *place)
{
	const char *type = place->type ? place->type : "an unknown file system";

	if (!place->disk)
		return text_of("%s; no NVMe disk", type);
	if (!place->controller)
		return text_of("%s on %s; no NVMe disk", type, place->disk);
	return text_of("%s on %s of %s, %s", type, place->disk, place->controller,
		       place->address ? place->address : "?");
}
