//go:build desktop && linux

#include "view_linux.h"
#include "_cgo_export.h"
#include <gtk/gtk.h>
#include <webkit2/webkit2.h>

static const char *home = "wails://wails/";

static GMutex lock;
static gh_place place;

static void find_view(GtkWidget *w, gpointer out) {
	WebKitWebView **view = out;
	if (*view) return;
	if (WEBKIT_IS_WEB_VIEW(w)) *view = WEBKIT_WEB_VIEW(w);
	else if (GTK_IS_CONTAINER(w)) gtk_container_forall(GTK_CONTAINER(w), find_view, out);
}

// The window is the one that holds the page; dialogs hold none.
static GtkWindow *window_and_view(WebKitWebView **view) {
	GtkWindow *found = NULL;
	*view = NULL;
	GList *all = gtk_window_list_toplevels();
	for (GList *l = all; l && !found; l = l->next) {
		find_view(GTK_WIDGET(l->data), view);
		if (*view) found = GTK_WINDOW(l->data);
	}
	g_list_free(all);
	return found;
}

static void note(GtkWindow *w) {
	GdkWindow *g = gtk_widget_get_window(GTK_WIDGET(w));
	if (!g || !gtk_widget_get_mapped(GTK_WIDGET(w))) return;
	GdkWindowState st = gdk_window_get_state(g);
	g_mutex_lock(&lock);
	place.active = gtk_window_is_active(w);
	place.maximised = (st & GDK_WINDOW_STATE_MAXIMIZED) != 0;
	// What a full screen or a maximised window measures is not where it goes back to.
	if (!(st & (GDK_WINDOW_STATE_MAXIMIZED | GDK_WINDOW_STATE_FULLSCREEN | GDK_WINDOW_STATE_ICONIFIED | GDK_WINDOW_STATE_TILED))) {
		gtk_window_get_position(w, &place.x, &place.y);
		gtk_window_get_size(w, &place.width, &place.height);
		place.seen = 1;
	}
	g_mutex_unlock(&lock);
}

static gboolean on_configure(GtkWidget *w, GdkEvent *e, gpointer d) { note(GTK_WINDOW(w)); return FALSE; }

static void on_active(GObject *w, GParamSpec *p, gpointer d) {
	note(GTK_WINDOW(w));
	if (gtk_window_is_active(GTK_WINDOW(w))) ghLooked();
}

// The page shows itself and nothing else: a file that is dropped on it, a link, a
// form or a script that goes elsewhere are not followed.
static gboolean on_policy(WebKitWebView *v, WebKitPolicyDecision *d, WebKitPolicyDecisionType type, gpointer u) {
	if (type == WEBKIT_POLICY_DECISION_TYPE_RESPONSE) return FALSE;
	WebKitNavigationAction *a = webkit_navigation_policy_decision_get_navigation_action(WEBKIT_NAVIGATION_POLICY_DECISION(d));
	const char *to = webkit_uri_request_get_uri(webkit_navigation_action_get_request(a));
	if (type == WEBKIT_POLICY_DECISION_TYPE_NAVIGATION_ACTION && to && g_str_has_prefix(to, home)) return FALSE;
	webkit_policy_decision_ignore(d);
	return TRUE;
}

static gboolean on_permission(WebKitWebView *v, WebKitPermissionRequest *r, gpointer u) {
	webkit_permission_request_deny(r);
	return TRUE;
}

static void on_download(WebKitWebContext *c, WebKitDownload *d, gpointer u) { webkit_download_cancel(d); }

// A page whose process died is loaded again; its state is the core's and comes back.
static void on_death(WebKitWebView *v, WebKitWebProcessTerminationReason why, gpointer u) {
	static gint64 last;
	gint64 now = g_get_monotonic_time();
	g_printerr("the page's process ended (%d)\n", (int)why);
	if (last && now - last < 10 * G_USEC_PER_SEC) return; // it does not help
	last = now;
	webkit_web_view_load_uri(v, home);
}

static gboolean guard(gpointer d) {
	WebKitWebView *v;
	GtkWindow *w = window_and_view(&v);
	if (!w) return G_SOURCE_REMOVE;
	g_signal_connect(v, "decide-policy", G_CALLBACK(on_policy), NULL);
	g_signal_connect(v, "permission-request", G_CALLBACK(on_permission), NULL);
	g_signal_connect(v, "web-process-terminated", G_CALLBACK(on_death), NULL);
	g_signal_connect(webkit_web_view_get_context(v), "download-started", G_CALLBACK(on_download), NULL);
	WebKitSettings *s = webkit_web_view_get_settings(v);
	webkit_settings_set_enable_developer_extras(s, FALSE);
	webkit_settings_set_javascript_can_open_windows_automatically(s, FALSE);
	webkit_settings_set_allow_file_access_from_file_urls(s, FALSE);
	webkit_settings_set_allow_universal_access_from_file_urls(s, FALSE);
	webkit_settings_set_enable_back_forward_navigation_gestures(s, FALSE);
	g_signal_connect(w, "configure-event", G_CALLBACK(on_configure), NULL);
	g_signal_connect(w, "window-state-event", G_CALLBACK(on_configure), NULL);
	g_signal_connect(w, "notify::is-active", G_CALLBACK(on_active), NULL);
	return G_SOURCE_REMOVE;
}
void gh_guard(void) { g_idle_add(guard, NULL); }

static gboolean settle(gpointer d) {
	WebKitWebView *v;
	GtkWindow *w = window_and_view(&v);
	if (!w) return G_SOURCE_REMOVE;
	GdkDisplay *dis = gtk_widget_get_display(GTK_WIDGET(w));
	enum { MOST = 16 };
	gh_place screens[MOST] = {0};
	int n = gdk_display_get_n_monitors(dis);
	if (n > MOST) n = MOST;
	for (int i = 0; i < n; i++) {
		GdkRectangle r;
		gdk_monitor_get_workarea(gdk_display_get_monitor(dis, i), &r);
		screens[i] = (gh_place){.x = r.x, .y = r.y, .width = r.width, .height = r.height};
	}
	gh_place p = {0};
	ghFit(screens, n, &p);
	if (p.width > 0) {
		gtk_window_resize(w, p.width, p.height);
		gtk_window_move(w, p.x, p.y);
	}
	if (p.maximised) gtk_window_maximize(w);
	return G_SOURCE_REMOVE;
}
// Below the toolkit's own, which first centres the window.
void gh_settle(void) { g_idle_add_full(G_PRIORITY_LOW, settle, NULL, NULL); }

static gboolean present(gpointer d) {
	char *token = d;
	WebKitWebView *v;
	GtkWindow *w = window_and_view(&v);
	if (w) {
		if (*token) gtk_window_set_startup_id(w, token);
		gtk_widget_show(GTK_WIDGET(w));
		gtk_window_deiconify(w);
		gtk_window_present_with_time(w, GDK_CURRENT_TIME);
	}
	g_free(token);
	return G_SOURCE_REMOVE;
}
void gh_present(const char *token) { g_idle_add(present, g_strdup(token)); }

static gboolean edit(gpointer d) {
	WebKitWebView *v;
	if (window_and_view(&v)) webkit_web_view_execute_editing_command(v, d);
	g_free(d);
	return G_SOURCE_REMOVE;
}
void gh_edit(const char *command) { g_idle_add(edit, g_strdup(command)); }

static gboolean zoom(gpointer d) {
	int steps = GPOINTER_TO_INT(d);
	WebKitWebView *v;
	if (window_and_view(&v)) {
		double z = steps ? webkit_web_view_get_zoom_level(v) + 0.1 * steps : 1;
		webkit_web_view_set_zoom_level(v, CLAMP(z, 0.5, 3));
	}
	return G_SOURCE_REMOVE;
}
void gh_zoom(int steps) { g_idle_add(zoom, GINT_TO_POINTER(steps)); }

static gboolean fullscreen(gpointer d) {
	WebKitWebView *v;
	GtkWindow *w = window_and_view(&v);
	GdkWindow *g = w ? gtk_widget_get_window(GTK_WIDGET(w)) : NULL;
	if (!g) return G_SOURCE_REMOVE;
	if (gdk_window_get_state(g) & GDK_WINDOW_STATE_FULLSCREEN) gtk_window_unfullscreen(w);
	else gtk_window_fullscreen(w);
	return G_SOURCE_REMOVE;
}
void gh_fullscreen(void) { g_idle_add(fullscreen, NULL); }

typedef struct { char *label; unsigned key; GdkModifierType mods; } hint_of;

static void hint_in(GtkWidget *w, gpointer d) {
	hint_of *h = d;
	if (GTK_IS_MENU_ITEM(w)) {
		GtkWidget *child = gtk_bin_get_child(GTK_BIN(w));
		if (GTK_IS_ACCEL_LABEL(child) && g_strcmp0(gtk_menu_item_get_label(GTK_MENU_ITEM(w)), h->label) == 0)
			gtk_accel_label_set_accel(GTK_ACCEL_LABEL(child), h->key, h->mods);
		GtkWidget *sub = gtk_menu_item_get_submenu(GTK_MENU_ITEM(w));
		if (sub) gtk_container_forall(GTK_CONTAINER(sub), hint_in, d);
	} else if (GTK_IS_CONTAINER(w) && !WEBKIT_IS_WEB_VIEW(w)) {
		gtk_container_forall(GTK_CONTAINER(w), hint_in, d);
	}
}
static gboolean hint(gpointer d) {
	hint_of *h = d;
	WebKitWebView *v;
	GtkWindow *w = window_and_view(&v);
	if (w) hint_in(GTK_WIDGET(w), h);
	g_free(h->label);
	g_free(h);
	return G_SOURCE_REMOVE;
}
void gh_hint(const char *label, unsigned key, int control, int shift) {
	hint_of *h = g_new0(hint_of, 1);
	h->label = g_strdup(label);
	h->key = key;
	h->mods = (control ? GDK_CONTROL_MASK : 0) | (shift ? GDK_SHIFT_MASK : 0);
	g_idle_add(hint, h);
}

gh_place gh_now(void) {
	g_mutex_lock(&lock);
	gh_place p = place;
	g_mutex_unlock(&lock);
	return p;
}
