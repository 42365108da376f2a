// The parts of GTK and WebKit that the window needs beyond its toolkit. Every
// function but gh_now may be called from any thread: it does its work on the main one.
#ifndef GLASSHOUSE_VIEW_H
#define GLASSHOUSE_VIEW_H

typedef struct { int x, y, width, height, maximised, active, seen; } gh_place;

// Watches the window and keeps the page where it belongs.
void gh_guard(void);
// Moves the window, once it is on the screen, to where fit says; that is Go's.
void gh_settle(void);
void gh_present(const char *token);
void gh_edit(const char *command);
void gh_zoom(int steps); // 0: back to the usual size
void gh_fullscreen(void);
// Shows a key beside a menu's entry without taking that key from the page.
void gh_hint(const char *label, unsigned key, int control, int shift);
gh_place gh_now(void);

#endif
